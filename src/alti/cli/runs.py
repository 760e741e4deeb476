"""Commands that take a data set and a while; a run that was stopped goes on."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from alti import LoadError, UsageError
from alti._characters import harmless, note, plain
from alti.cli.console import bar, resumable, say, unanswered
from alti.cli.shared import Device, Dtype, Json, ModelName, PairColumn, Trust, by_commas, open_model


def bench(
    data: Annotated[
        str,
        typer.Option(help="A parquet, JSONL, CSV, TSV or text file, or a hub name (NAME:CONFIG)."),
    ],
    model: ModelName = None,
    methods: Annotated[
        str | None, typer.Option(help="Names, by commas; alti:p=2 gives an option. Default: all.")
    ] = None,
    metrics: Annotated[
        str,
        typer.Option(
            help="See `alti metrics`; by commas; probability_drop:steps=60 gives an option."
        ),
    ] = "comprehensiveness,sufficiency",
    split: Annotated[str | None, typer.Option(help="Of the data.")] = None,
    text_column: Annotated[str | None, typer.Option(help="Default: text, sentence, …")] = None,
    label_column: Annotated[str | None, typer.Option(help="Default: label.")] = None,
    rationale_column: Annotated[
        str | None, typer.Option(help="Weights of words, for plausibility.")
    ] = None,
    pair_column: PairColumn = None,
    first: Annotated[int | None, typer.Option(help="Only so many rows, from the top.")] = None,
    sample: Annotated[
        int | None, typer.Option(help="Only so many rows, drawn with --seed.")
    ] = None,
    seed: Annotated[int, typer.Option()] = 0,
    mask: Annotated[
        bool, typer.Option("--mask", help="Mask tokens instead of deleting them.")
    ] = False,
    mask_token: Annotated[
        str | None, typer.Option(help="How the data writes the mask token.")
    ] = None,
    envelope: Annotated[
        bool, typer.Option("--envelope", help="Running extremes, as the paper's released code.")
    ] = False,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut texts that are too long.")
    ] = False,
    keep_scores: Annotated[
        bool, typer.Option("--keep-scores", help="Write the scores into the rows too.")
    ] = False,
    out: Annotated[
        Path, typer.Option(help="The rows; a run that was stopped goes on from there.")
    ] = Path("bench.jsonl"),
    form: Annotated[str, typer.Option("--format", help="text, markdown, latex or csv.")] = "text",
    device: Device = "auto",
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    as_json: Json = False,
) -> None:
    """Compare methods on a data set: which tokens matter, by how much the prediction suffers without them?"""
    from alti.experiments.bench import (
        PAPER,
        Plan,
        curves,
        default_methods,
        load_rows,
        run,
        summary,
        work,
    )
    from alti.model.loading import DEFAULT_NAME
    from alti.views.tables import key_of, long_csv

    if not out.parent.is_dir() or (out.exists() and not out.is_file()):
        raise UsageError(f"--out {out} cannot be written: give a file in a folder that exists")
    if out.exists() and Path(data).exists() and out.samefile(data):
        raise UsageError(f"--out {out} is the data itself: name another file for the rows")
    if form not in ("text", "markdown", "latex", "csv"):
        raise UsageError(f"--format {form} does not exist: choose text, markdown, latex or csv")
    plan = Plan(
        model=DEFAULT_NAME if model in (None, "default") else str(model),
        data=data,
        methods=tuple(by_commas(methods)) if methods else PAPER,
        metrics=tuple(by_commas(metrics)),
        split=split,
        text=text_column,
        label=label_column,
        rationale=rationale_column,
        pair=pair_column,
        first=first,
        sample=sample,
        seed=seed,
        mask=mask,
        mask_token=mask_token,
        envelope=envelope,
        truncate=truncate,
        keep_scores=keep_scores,
    )
    loaded = open_model(model, device, dtype, trust_remote_code)
    if not methods and (fewer := default_methods(loaded)) != PAPER:
        gone = ", ".join(spec for spec in PAPER if spec not in fewer)
        note(f"left out, for want of a second norm in {loaded.family}: {gone}")
        plan = replace(plan, methods=fewer)
    with resumable(out), unanswered(), bar("texts") as update:
        for step in run(plan, loaded, out):
            update(step.texts, step.total)
    plan, rows = load_rows(out)
    if not any("method" in row for row in rows):
        reasons = {row["skipped"] for row in rows if "skipped" in row} or {"it has no rows"}
        raise LoadError(f"no text of {data} could be used: {sorted(reasons)[0]}")
    tables, spent = summary(plan, rows), work(rows)
    if as_json:
        plain = [table.to_dict() for table in tables]
        drawn = {key_of(name): line for name, line in curves(plan, rows).items()}
        say(json.dumps({"tables": plain, "curves": drawn, "work": spent}))
    else:
        each = [long_csv(tables)] if form == "csv" else [getattr(table, form)() for table in tables]
        say(harmless("\n".join(each)), end="")
    passes, single, seconds = (
        f"{spent.get(key, 0):,.0f}" for key in ("passes", "unbatched", "seconds")
    )
    note(f"{passes} forward passes in {seconds} s, {single} if one by one; rows in {out}")


def train(
    checkpoint: Annotated[str, typer.Argument(help="What to fine-tune: a hub name or a folder.")],
    out: Annotated[
        Path,
        typer.Argument(help="The folder for the model; a run that was stopped goes on from there."),
    ],
    data: Annotated[
        str, typer.Option(help="A parquet, JSONL, CSV or TSV file, or a hub name (NAME:CONFIG).")
    ],
    split: Annotated[str | None, typer.Option(help="To train on.")] = "train",
    validation: Annotated[
        str | None, typer.Option(help="Split to measure accuracy on; '' for none.")
    ] = "validation",
    text_column: Annotated[str | None, typer.Option(help="Default: text, sentence, …")] = None,
    label_column: Annotated[str | None, typer.Option(help="Default: label.")] = None,
    pair_column: PairColumn = None,
    task: Annotated[
        str, typer.Option(help="text, or mask: the head reads the mask token.")
    ] = "text",
    mask_token: Annotated[
        str | None, typer.Option(help="How the data writes the mask token.")
    ] = None,
    first: Annotated[int | None, typer.Option(help="Only so many rows.")] = None,
    epochs: Annotated[float, typer.Option()] = 3.0,
    batch: Annotated[int, typer.Option(help="Texts per step.")] = 32,
    rate: Annotated[float, typer.Option(help="Learning rate.")] = 2e-5,
    tokens: Annotated[int, typer.Option(help="Longer texts are cut.")] = 128,
    seed: Annotated[int, typer.Option()] = 0,
    saves: Annotated[
        int, typer.Option(help="How often the state is written, to go on from; 0: never.")
    ] = 20,
    trust_remote_code: Trust = False,
    as_json: Json = False,
) -> None:
    """Fine-tune a classifier of texts, or of the masked position in them."""
    from transformers.utils.logging import disable_progress_bar, set_verbosity_error

    from alti.experiments.train import Recipe, train

    settings: dict[str, Any] = {
        "epochs": epochs,
        "batch": batch,
        "rate": rate,
        "tokens": tokens,
        "seed": seed,
    }
    settings |= {
        "split": split or None,
        "validation": validation or None,
        "task": task,
        "first": first,
    }
    settings |= {
        "text": text_column,
        "label": label_column,
        "pair": pair_column,
        "mask_token": mask_token,
    }
    recipe = Recipe(checkpoint, data, **settings, trust_remote_code=trust_remote_code)
    disable_progress_bar()
    set_verbosity_error()  # that a new head was made is what was asked for
    with resumable(out, kept=saves > 0), unanswered(), bar("steps") as update:
        card = train(recipe, out, saves=saves, watch=update)
    if as_json:
        say(json.dumps(card))
        return
    measured = (
        ""
        if card["accuracy"] is None
        else f", accuracy {card['accuracy']:.3f} on {card['validation_texts']}"
    )
    labels = ", ".join(card["labels"])
    say(plain(f"{out}: trained on {card['texts']} texts{measured}; labels {labels}"))
