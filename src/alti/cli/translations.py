"""What `alti train` and `alti bench` do with models that translate."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alti import UsageError
from alti._characters import harmless, note
from alti.cli.console import bar, no_input, resumable, say
from alti.cli.shared import comma_separated

if TYPE_CHECKING:
    from alti import Model


def bench_alignment(
    model: "Model",
    methods: str | None,
    near: float | None,
    common: dict[str, Any],
    out: Path,
    form: str,
    as_json: bool,
) -> None:
    """Compare methods by the word alignments that they give."""
    from alti.experiments.aligned import METHODS, Aligning, run, table
    from alti.model.alignment import NEAR
    from alti.views.tables import long_csv

    chosen = tuple(comma_separated(methods)) if methods else METHODS
    plan = Aligning(methods=chosen, near=NEAR if near is None else near, **common)
    with resumable(out), no_input(), bar("texts") as update:
        rows = run(plan, model, out, update)
    made = table(plan, rows)
    if as_json:
        say(json.dumps({"tables": [made.to_dict()]}))
        return
    say(harmless(long_csv([made]) if form == "csv" else getattr(made, form)()), end="")
    note(f"rows in {out}")


def translation_of(
    checkpoint: str,
    columns: tuple[str | None, str | None],
    places: dict[str, Any],
    settings: dict[str, Any],
) -> Any:
    """What trains a new translation model: (out, saves, watch) -> its card."""
    from alti.experiments.translation import FRESH, Translation, train_translation

    source, target = columns
    if checkpoint != FRESH:
        raise UsageError(
            f"--task translation trains a new model, and {checkpoint!r} was given to start from: "
            f"write {FRESH}, the shape of the new one"
        )
    if source is None or target is None:
        raise UsageError(
            "--task translation needs two columns: name that of the texts with --text-column and "
            "that of their translations with --target-column"
        )
    if "width" in settings:
        settings = {**settings, "inner": 2 * settings["width"]}
    recipe = Translation(source=source, target=target, **_splits(places), **settings)
    return partial(train_translation, recipe)


def _splits(places: dict[str, Any]) -> dict[str, Any]:
    """Without the usual names of splits for data that have none."""
    from alti.experiments.formats import has_splits

    usual = {"split": "train", "validation": "validation"}
    left_out = usual if not has_splits(places["data"]) else {}
    return {
        name: None if value == left_out.get(name, "") else value for name, value in places.items()
    }


def translation_sentence(card: dict[str, Any]) -> str:
    """What was trained, in one line."""
    quality = ""
    if card["bleu"] is not None:
        quality = f", BLEU {card['bleu']:.1f} on {card['validation_pairs']}"
    return f"trained on {card['pairs']} pairs{quality}; {card['parameters']:,} parameters"
