"""Commands that run over a data set; a stopped run can be resumed."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alti import LoadError, UsageError
from alti._characters import harmless, note, plain
from alti.cli.console import bar, no_input, resumable, say
from alti.cli.many import Actors, Address, EngineName, Gpus, benched
from alti.cli.shared import (
    Device,
    Dtype,
    Json,
    LabelColumn,
    MaskToken,
    ModelName,
    Near,
    PairColumn,
    TextColumn,
    Truncate,
    Trust,
    comma_separated,
    open_model,
)
from alti.cli.translations import bench_alignment, translation_of, translation_sentence

if TYPE_CHECKING:
    from alti import Model
    from alti.experiments.bench import Plan, Progress, Study
    from alti.experiments.evaluate import Row

    Ran = Callable[[Path], Iterator[Progress]]

FORMATS = ("text", "markdown", "latex", "csv")


def bench(
    data: Annotated[
        str,
        typer.Option(help="A parquet, JSONL, CSV, TSV or text file, or a hub name (NAME:CONFIG)."),
    ],
    model: ModelName = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Comma-separated names; alti:p=2 sets an option. Default: all."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated, see `alti metrics`; probability_drop:steps=60 sets an option. "
            "Default: comprehensiveness,sufficiency, or those of the task."
        ),
    ] = None,
    task: Annotated[
        str,
        typer.Option(
            help="text; of language models: answer (from documents), next (word), evidence; of "
            "encoder–decoders: alignment."
        ),
    ] = "text",
    split: Annotated[str | None, typer.Option(help="Of the data.")] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    rationale_column: Annotated[
        str | None, typer.Option(help="Weights of words, for plausibility.")
    ] = None,
    pair_column: PairColumn = None,
    first: Annotated[int | None, typer.Option(help="Use only the first N rows.")] = None,
    sample: Annotated[int | None, typer.Option(help="Use only N rows, drawn with --seed.")] = None,
    seed: Annotated[int, typer.Option()] = 0,
    mask: Annotated[
        bool, typer.Option("--mask", help="Mask tokens instead of deleting them.")
    ] = False,
    mask_token: MaskToken = None,
    envelope: Annotated[
        bool, typer.Option("--envelope", help="Running extremes, as in the paper's released code.")
    ] = False,
    truncate: Truncate = False,
    keep_scores: Annotated[
        bool, typer.Option("--keep-scores", help="Write the scores into the rows too.")
    ] = False,
    group: Annotated[
        str | None, typer.Option(help="Sources of a context: sentence, word, line or document.")
    ] = None,
    generate: Annotated[
        int | None, typer.Option(help="Tokens to write where no answer is given; default: 16.")
    ] = None,
    subsets: Annotated[
        int | None, typer.Option(help="Contexts with half of their sources, for lds; default: 64.")
    ] = None,
    distractors: Annotated[
        int | None, typer.Option(help="Documents beside the gold one; default: all documents.")
    ] = None,
    near: Near = None,
    rival: Annotated[
        str | None, typer.Option(help="Differences to this method; default: the best.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The file for the rows; a stopped run resumes from it.")
    ] = Path("bench.jsonl"),
    form: Annotated[str, typer.Option("--format", help="text, markdown, latex or csv.")] = "text",
    engine: EngineName = "local",
    address: Address = None,
    actors: Actors = None,
    gpus: Gpus = 0,
    device: Device = "auto",
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    as_json: Json = False,
) -> None:
    """Compare methods on a data set: how much does the prediction suffer without their tokens?"""
    _require_outputs(out, data, form)
    common = {
        "model": _name(model),
        "data": data,
        "split": split,
        "first": first,
        "sample": sample,
        "seed": seed,
    }
    of_texts = {
        "text": text_column,
        "label": label_column,
        "rationale": rationale_column,
        "pair": pair_column,
        "mask": mask,
        "mask_token": mask_token,
        "envelope": envelope,
        "truncate": truncate,
        "keep_scores": keep_scores,
    }
    of_contexts = {"group": group, "generate": generate, "rival": rival}
    of_contexts |= {"subsets": subsets, "distractors": distractors}
    loading = partial(open_model, model, device, dtype, trust_remote_code)
    named = (model, device, dtype, False, trust_remote_code)
    ran = benched(task, named, engine_name=engine, address=address, actors=actors, gpus=gpus)
    if task == "alignment":
        _require_none({**of_texts, **of_contexts, "metrics": metrics}, task)
        return bench_alignment(loading(), methods, near, common, out, form, as_json)
    if task == "text":
        _require_none({**of_contexts, "near": near}, task)
        plan: Plan | Study = _plan(methods, metrics, common | of_texts)
    else:
        _require_none({**of_texts, "near": near}, task)
        plan = _study(task, methods, metrics, common | of_contexts)
    loaded = loading()
    plan = plan if methods else _with_default_methods(plan, loaded)
    return _bench(plan, partial(ran, plan, loaded), out, form, as_json, rival)


def _bench(
    plan: "Plan | Study", ran: "Ran", out: Path, form: str, as_json: bool, rival: str | None
) -> None:
    plan, rows = _rows(plan, ran, out)
    _print_bench(plan, rows, form, as_json, rival)
    _note_work(plan, rows, out)


def _name(model: str | None) -> str:
    from alti.model.loading import DEFAULT_NAME, is_default

    return DEFAULT_NAME if is_default(model) else str(model)


def _require_none(options: dict[str, Any], task: str) -> None:
    """Refuse options that would do nothing."""
    names = {"text": "text-column", "label": "label-column", "rationale": "rationale-column"}
    names |= {"pair": "pair-column", "mask_token": "mask-token", "keep_scores": "keep-scores"}
    names |= {"target_column": "target-column"}
    for name, value in options.items():
        if value not in (None, False):
            raise UsageError(f"--{names.get(name, name)} says nothing about --task {task}: drop it")


def _plan(methods: str | None, metrics: str | None, options: dict[str, Any]) -> "Plan":
    from alti.experiments.bench import PAPER, Plan

    return Plan(
        methods=tuple(comma_separated(methods)) if methods else PAPER,
        metrics=tuple(comma_separated(metrics or "comprehensiveness,sufficiency")),
        **options,
    )


def _study(task: str, methods: str | None, metrics: str | None, options: dict[str, Any]) -> "Study":
    from alti.experiments.bench import Study
    from alti.experiments.study import default_methods

    rival = options.pop("rival")
    chosen = tuple(comma_separated(methods)) if methods else default_methods()
    if rival is not None and rival not in chosen:
        raise UsageError(f"--rival {rival} is not run: choose {', '.join(chosen)}")
    return Study(
        task=task,
        methods=chosen,
        metrics=tuple(comma_separated(metrics)) if metrics else (),
        **{name: value for name, value in options.items() if value is not None},
    )


def _require_outputs(out: Path, data: str, form: str) -> None:
    if not out.parent.is_dir() or (out.exists() and not out.is_file()):
        raise UsageError(f"--out {out} cannot be written: give a file in a folder that exists")
    if out.exists() and Path(data).exists() and out.samefile(data):
        raise UsageError(f"--out {out} is the data itself: name another file for the rows")
    if form not in FORMATS:
        raise UsageError(f"--format {form} does not exist: choose text, markdown, latex or csv")


def _with_default_methods(plan: "Plan | Study", model: "Model") -> "Plan | Study":
    from alti.experiments import study
    from alti.experiments.bench import PAPER, Study, default_methods

    if isinstance(plan, Study):
        return replace(plan, methods=study.default_methods(model))
    methods = default_methods(model)
    if left_out := [spec for spec in PAPER if spec not in methods]:
        note(f"left out, {model.family} has no second norm: {', '.join(left_out)}")
    return replace(plan, methods=methods)


def _rows(plan: "Plan | Study", ran: "Ran", out: Path) -> "tuple[Plan | Study, list[Row]]":
    """Run a plan, and read what it wrote."""
    from alti.experiments.bench import load_rows

    with resumable(out), no_input(), bar("texts") as update:
        for progress in ran(out):
            update(progress.texts, progress.total)
    plan, rows = load_rows(out)
    if not any("method" in row for row in rows):
        reasons = {row["skipped"] for row in rows if "skipped" in row} or {"it has no rows"}
        raise LoadError(f"no text of {plan.data} could be used: {min(reasons)}")
    return plan, rows


def _print_bench(
    plan: "Plan | Study", rows: "list[Row]", form: str, as_json: bool, rival: str | None
) -> None:
    from alti.experiments.bench import Study, cost, curves, summary, verdicts, work
    from alti.views.tables import key_of, long_csv

    if isinstance(plan, Study):
        tables = verdicts(plan, rows, rival)
        content: dict[str, Any] = {"work": cost(rows)}
    else:
        tables = summary(plan, rows)
        shown = {key_of(name): curve for name, curve in curves(plan, rows).items()}
        content = {"curves": shown, "work": work(rows)}
    if as_json:
        say(json.dumps({"tables": [table.to_dict() for table in tables], **content}))
        return
    parts = [long_csv(tables)] if form == "csv" else [getattr(table, form)() for table in tables]
    say(harmless("\n".join(parts)), end="")


def _note_work(plan: "Plan | Study", rows: "list[Row]", out: Path) -> None:
    from alti.experiments.bench import Study, cost, work

    if isinstance(plan, Study):
        made = {name: f"{amount:,.0f}" for name, amount in cost(rows).items()}
        note(f"methods: {made['forward']} forward, {made['backward']} backward; rows in {out}")
        return
    total = {key: f"{amount:,.0f}" for key, amount in work(rows).items()}
    passes = total.get("passes", "0")
    seconds = total.get("seconds", "0")
    unbatched = total.get("unbatched", "0")
    note(f"{passes} forward passes in {seconds} s, {unbatched} if one by one; rows in {out}")


def train(
    checkpoint: Annotated[
        str,
        typer.Argument(
            help="What to fine-tune: a hub name or a folder; for translation: marian, a new model."
        ),
    ],
    out: Annotated[
        Path, typer.Argument(help="The folder for the model; a stopped run resumes from it.")
    ],
    data: Annotated[
        str, typer.Option(help="A parquet, JSONL, CSV or TSV file, or a hub name (NAME:CONFIG).")
    ],
    split: Annotated[str | None, typer.Option(help="To train on.")] = "train",
    validation: Annotated[
        str | None, typer.Option(help="Split to measure accuracy on; '' for none.")
    ] = "validation",
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    pair_column: PairColumn = None,
    target_column: Annotated[
        str | None, typer.Option(help="The translations of the texts, for --task translation.")
    ] = None,
    task: Annotated[
        str,
        typer.Option(help="text; mask: the head reads the mask token; translation: a new model."),
    ] = "text",
    mask_token: MaskToken = None,
    first: Annotated[int | None, typer.Option(help="Use only the first N rows.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Default: 3; translation: 6.")] = None,
    batch: Annotated[
        int | None, typer.Option(help="Texts per step; default: 32; translation: 64.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Learning rate; default: 2e-5; translation: 1e-3.")
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(help="Longer texts are cut, default: 128; translation: left out, 64."),
    ] = None,
    layers: Annotated[
        int | None, typer.Option(help="Of a new translation model, in each stack; default: 3.")
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(help="Of a new translation model, its MLPs twice that; default: 192."),
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option(help="Tokens of a new translation model; default: 4000.")
    ] = None,
    seed: Annotated[int, typer.Option()] = 0,
    saves: Annotated[
        int, typer.Option(help="How often the state is saved, to resume from; 0: never.")
    ] = 20,
    trust_remote_code: Trust = False,
    as_json: Json = False,
) -> None:
    """Fine-tune a classifier of texts, or of a masked position; or train a translation model."""
    from transformers.utils.logging import disable_progress_bar, set_verbosity_error

    steps = {"epochs": epochs, "batch": batch, "rate": rate, "tokens": tokens, "first": first}
    steps = {name: value for name, value in steps.items() if value is not None}
    shape = {"layers": layers, "width": width, "vocabulary": vocabulary}
    disable_progress_bar()
    set_verbosity_error()  # no warning that the head is new: that is the point
    if task == "translation":
        unfit = {"label": label_column, "pair": pair_column, "mask_token": mask_token}
        _require_none(unfit, task)
        sizes = {name: value for name, value in shape.items() if value is not None}
        columns = (text_column, target_column)
        places = {"data": data, "split": split, "validation": validation, "seed": seed}
        make = translation_of(checkpoint, columns, places, {**steps, **sizes})
    else:
        _require_none({**shape, "target_column": target_column}, task)
        make = _classifier(
            checkpoint,
            data,
            split=split or None,
            validation=validation or None,
            text=text_column,
            label=label_column,
            pair=pair_column,
            task=task,
            mask_token=mask_token,
            seed=seed,
            trust_remote_code=trust_remote_code,
            **steps,
        )
    with resumable(out, saved=saves > 0), no_input(), bar("steps") as update:
        card = make(out, saves=saves, watch=update)
    say(json.dumps(card) if as_json else plain(f"{out}: {_sentence(card)}"))


def _classifier(checkpoint: str, data: str, **settings: Any) -> Any:
    from alti.experiments.train import Recipe, train

    return partial(train, Recipe(checkpoint, data, **settings))


def _sentence(card: dict[str, Any]) -> str:
    """What was trained, in one line."""
    if card.get("task") == "translation":
        return translation_sentence(card)
    accuracy = ""
    if card["accuracy"] is not None:
        accuracy = f", accuracy {card['accuracy']:.3f} on {card['validation_texts']}"
    return f"trained on {card['texts']} texts{accuracy}; labels {', '.join(card['labels'])}"
