"""Which words of a German sentence does its translation rest on? Experiments on Multi30k.

    python -m reproduction.translation MODEL TEST.parquet

MODEL was trained with `alti train marian MODEL --task translation`; the file has columns de and en.
Writes reproduction/results/translation.json: deletion of source tokens by each method, the share of
the source by position, its fall where the source is another sentence's, and BLEU. Parts that the
file holds already are not computed again.
`python -m reproduction.translation tables` prints them as they stand in docs/translation.md.

    python -m reproduction.translation gold GERMAN ENGLISH LINKS OUT.jsonl

turns gold alignments of two text files (`german-english` from 1 on, `p`: possible) into rows for
`alti bench --task alignment`.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

import alti
from alti.experiments.plan import parsed
from alti.experiments.translation import bleu, pairs_of, translated
from alti.methods.ablation import values_without
from alti.model.question import Question
from alti.model.request import Request

RESULTS = Path(__file__).parent / "results" / "translation.json"
METHODS = (
    "random", "attention", "attention_rollout", "norms", "alti", "gradient:of=log_prob",
    "input_x_gradient:of=log_prob", "linear:of=log_prob", "alti_logit:of=log_prob",
    "absence:of=log_prob", "dimming", "consensus", "leave_one_out",
)  # fmt: skip
MAPS = ("alti", "attention_rollout", "norms", "linear:of=log_prob")
SIGNED = ("linear:of=log_prob",)
SHARES = (0.1, 0.2, 0.3, 0.5)  # of the source tokens that are deleted
DELETED = 100  # sentences, and of the other experiments
SHARED = 500
POSITIONS = 15


def deletion(
    model: alti.Model,
    pairs: list[tuple[str, str]],
    methods: Sequence[str] | None = None,
    count: int = DELETED,
) -> dict[str, dict[str, float]]:
    """The fall of log p of the reference without the source tokens that a method ranks highest.

    In nats for each token of the reference; the mean over sentences.
    """
    falls: dict[str, dict[str, list[float]]] = {}
    for source, target in pairs[:count]:
        task = model.read(Question(text=source, answer=target), Request())
        inputs, asked = model.batch([task], Request())
        own = (~inputs.special[0, : inputs.split]).nonzero()[:, 0]
        kept = torch.zeros(1, inputs.special.shape[1], dtype=torch.bool)
        for spec in methods or METHODS:
            name, options = parsed(spec)
            result = model.explain(source, answer=target, method=name, total=True, **options)
            order = own[result.scores[own].argsort(descending=True, stable=True)]
            gone = kept.repeat(1 + len(SHARES), 1)
            for row, share in enumerate(SHARES, start=1):
                gone[row, order[: max(1, round(share * len(own)))]] = True
            logs = values_without(model.model, inputs, asked, 0, gone, "log_prob").mean(1)
            for row, share in enumerate(SHARES, start=1):
                own_falls = falls.setdefault(spec, {}).setdefault(str(share), [])
                own_falls.append(float(logs[0] - logs[row]))
    return {
        spec: {share: fmean(values) for share, values in each.items()}
        for spec, each in falls.items()
    }


def share_by_position(results: list[alti.Attributions]) -> list[float]:
    """The mean share of the source in the first predictions of all sentences."""
    rows = [result.source_share.tolist() for result in results]
    return [fmean(row[k] for row in rows if len(row) > k) for k in range(POSITIONS)]


def area(lower: list[float], higher: list[float]) -> float:
    """The area under the ROC: how often a number of the second kind is above one of the first."""
    pairs = np.subtract.outer(np.array(higher), np.array(lower))
    return float(((pairs > 0) + 0.5 * (pairs == 0)).mean())


def detached(model: alti.Model, pairs: list[tuple[str, str]], method: str) -> dict[str, Any]:
    """The source's share of true translations and of translations of another sentence."""
    sources = [source for source, _ in pairs]
    targets = [target for _, target in pairs]
    name, options = parsed(method)
    found = {}
    for kind, texts in (("true", sources), ("swapped", [*sources[1:], sources[0]])):
        results = list(model.explain_all(texts, answer=targets, method=name, **options))
        found[kind] = results
    shares = {kind: [float(r.source_share.mean()) for r in each] for kind, each in found.items()}
    logs = {kind: [_log_p(result) for result in each] for kind, each in found.items()}
    return {
        "share": {kind: fmean(values) for kind, values in shares.items()},
        "auc": area(shares["swapped"], shares["true"]),
        "auc_log_p": area(logs["swapped"], logs["true"]),
        "positions": {kind: share_by_position(each) for kind, each in found.items()},
    }


def supported(model: alti.Model, pairs: list[tuple[str, str]], method: str) -> dict[str, Any]:
    """What the source says for a target, with its sign: of true and of other translations."""
    sources = [source for source, _ in pairs]
    targets = [target for _, target in pairs]
    name, options = parsed(method)
    support = {}
    for kind, texts in (("true", sources), ("swapped", [*sources[1:], sources[0]])):
        results = model.explain_all(texts, answer=targets, method=name, total=True, **options)
        support[kind] = [_source_sum(result) for result in results]
    means = {kind: fmean(values) for kind, values in support.items()}
    return {"support": means, "auc": area(support["swapped"], support["true"])}


def _source_sum(result: alti.Attribution) -> float:
    """The signed scores of the source for each token of the target."""
    count = len(result.source) - (result.source.answer or 0)
    return float(result.scores[: result.source.decoder].sum()) / count


def _log_p(result: alti.Attributions) -> float:
    return fmean(math.log(max(one.probability or 0, 1e-300)) for one in result.predictions)


def gold(german: str, english: str, links: str, out: str) -> None:
    """Gold alignments as rows."""
    texts = [Path(name).read_text().splitlines() for name in (german, english, links)]
    lines = []
    for source, target, written in zip(*texts, strict=True):
        found: dict[str, list[str]] = {"-": [], "p": []}
        for left, kind, right in re.findall(r"(\d+)([-p])(\d+)", written):
            found[kind].append(f"{int(left) - 1}-{int(right) - 1}")
        row = {"source": " ".join(source.split()), "target": " ".join(target.split())}
        row |= {"sure": " ".join(found["-"]), "possible": " ".join(found["p"])}
        lines.append(json.dumps(row) + "\n")
    Path(out).write_text("".join(lines))


def tables(results: dict[str, Any]) -> list[str]:
    """The results as they stand in docs/translation.md."""
    shares = [f"{float(share):.0%}" for share in next(iter(results["deletion"].values()))]
    deleted = _table(
        ["method", *shares],
        [[name, *map(_number, each.values())] for name, each in results["deletion"].items()],
    )
    told = _table(
        ["what is compared", "true source", "another source", "area under the ROC"],
        [
            [f"share of the source, {name}", *map(_number, (*each["share"].values(), each["auc"]))]
            for name, each in results["detached"].items()
        ]
        + [
            [f"signed sum, {name}", *map(_number, (*each["support"].values(), each["auc"]))]
            for name, each in results["supported"].items()
        ],
    )
    positions = results["detached"]["alti"]["positions"]
    by_position = _table(
        ["position", *map(str, range(1, POSITIONS + 1))],
        [[f"{kind} source", *(f"{share:.2f}" for share in row)] for kind, row in positions.items()],
    )
    return [deleted, told, by_position]


def _number(value: float) -> str:
    return f"{value:.3f}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows)) + "\n"


def main() -> None:
    if sys.argv[1] == "gold":
        gold(*sys.argv[2:6])
        return
    if sys.argv[1] == "tables":
        print("\n".join(tables(json.loads(RESULTS.read_text()))))
        return
    model = alti.load(sys.argv[1])
    pairs = list(pairs_of(sys.argv[2], "de", "en", None))
    some = pairs[:SHARED]
    parts: dict[str, Callable[[], Any]] = {
        "pairs": lambda: len(pairs),
        "bleu": lambda: _bleu(model, pairs),
        "detached": lambda: {method: detached(model, some, method) for method in MAPS},
        "supported": lambda: {method: supported(model, some, method) for method in SIGNED},
        "deletion": lambda: deletion(model, pairs),
    }
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, part in parts.items():
        if name not in results:  # what a stopped run left out
            results[name] = part()
            RESULTS.write_text(json.dumps(results, indent=2) + "\n")


def _bleu(model: alti.Model, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    written = translated(model.model, model.tokenizer, [source for source, _ in pairs])
    return bleu(written, [target for _, target in pairs])


if __name__ == "__main__":
    main()
