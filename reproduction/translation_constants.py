"""The constants of absence, dimming and consensus, chosen anew for a translation model.

    python -m reproduction.translation_constants MODEL VALIDATION.parquet TEST.parquet

MODEL and the files are those of `reproduction.translation`. Of each method the constants are chosen
that make the fall of log p largest (the mean over the shares of source tokens that are deleted) on
the first pairs of the validation set; the test set then says what they, the defaults and alti do.
Writes reproduction/results/translation_constants.json.
`python -m reproduction.translation_constants tables` prints the tables of docs/translation.md.
"""

import json
import sys
from pathlib import Path
from statistics import fmean

import alti
from alti.experiments.translation import pairs_of
from reproduction.translation import DELETED, _number, _table, deletion

RESULTS = Path(__file__).parent / "results" / "translation_constants.json"
CHOOSING = 50  # pairs of the validation set
DEFAULTS = {
    "absence": "absence:of=log_prob",
    "dimming": "dimming",
    "consensus": "consensus",
}
OTHERS = {  # beside the defaults
    "absence": (
        *(
            f"absence:of=log_prob:value={value}:response={response}:messages={messages}"
            for value, response in ((0.5, 0.1), (0.5, 0), (1, 0), (1, 0.1), (1, 0.5))
            for messages in (0.5, 2)
            if (value, response, messages) != (0.5, 0.1, 0.5)  # the default
        ),
        "absence:of=log_prob:rule=first_order",
        "absence:of=log_prob:rule=effects",
    ),
    "dimming": (
        *(f"dimming:strength={strength}" for strength in (0.03, 0.3, 0.5, 0.8, 1)),
        "dimming:points=8",
    ),
    "consensus": (
        *(f"consensus:strength={strength}" for strength in (0.3, 0.8)),
        *(f"consensus:value=1:response=0:strength={strength}" for strength in (0.05, 0.8)),
    ),
}
BESIDE = ("alti",)


def chosen(found: dict[str, dict[str, float]]) -> dict[str, str]:
    """The best constants of each method, by the mean over the shares that are deleted."""
    means = {spec: fmean(shares.values()) for spec, shares in found.items()}
    return {
        name: max((default, *OTHERS[name]), key=means.__getitem__)
        for name, default in DEFAULTS.items()
    }


def table(found: dict[str, dict[str, float]]) -> str:
    """The falls for each share, and their mean."""
    shares = [f"{float(share):.0%}" for share in next(iter(found.values()))]
    rows = [
        [name, *map(_number, (*each.values(), fmean(each.values())))]
        for name, each in found.items()
    ]
    return _table(["method", *shares, "mean"], rows)


def main() -> None:
    if sys.argv[1] == "tables":
        results = json.loads(RESULTS.read_text())
        print(table(results["validation"]), table(results["test"]), sep="\n")
        return
    model = alti.load(sys.argv[1])
    validation, test = (list(pairs_of(name, "de", "en", None)) for name in sys.argv[2:4])
    specs = [spec for name in DEFAULTS for spec in (DEFAULTS[name], *OTHERS[name])]
    found = deletion(model, validation, (*BESIDE, *specs), CHOOSING)
    best = chosen(found)
    shown = dict.fromkeys((*BESIDE, *(x for name in best for x in (DEFAULTS[name], best[name]))))
    results = {
        "validation": found,
        "chosen": best,
        "test": deletion(model, test, tuple(shown), DELETED),
    }
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
