"""Commands that list what there is."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alti import FAMILIES, Family
from alti.cli.console import table
from alti.cli.shared import Json
from alti.refused import REFUSED

if TYPE_CHECKING:
    from alti.methods import Method

Refused = Annotated[bool, typer.Option("--refused", help="Those that cannot be read, and why.")]


def families(refused: Refused = False, as_json: Json = False) -> None:
    """List the model families that can be read."""
    if refused:
        table([{"family": name, "why": why} for name, why in sorted(REFUSED.items())], as_json)
        return
    table([_family_row(name, family) for name, family in sorted(FAMILIES.items())], as_json)


def _family_row(name: str, family: Family) -> dict[str, Any]:
    stacks = [stack for stack in family.stacks if not (stack.when or "").startswith("not ")]
    return {
        "family": name,
        "reads": " + ".join(stack.blocks for stack in stacks),
        "classifier_reads": family.pool,
        "second_norm": any(site.ffn_norm for stack in family.stacks for site in stack.sites),
    }


def methods(as_json: Json = False) -> None:
    """List the attribution methods and their options."""
    from alti.methods import METHODS

    ordered = sorted(METHODS.values(), key=_place)
    entries = [(method.name, method.options, method.summary) for method in ordered]
    _list("method", entries, as_json, about=[_about(method) for method in ordered])


def _place(method: "Method") -> tuple[bool, ...]:
    """Those for a class first, of them those that run the model few times; chance last."""
    return not method.reads_model, not method.class_specific, method.many_passes


def _about(method: "Method") -> dict[str, Any]:
    if not method.reads_model:
        return {"explains": "nothing"}
    explains = "a class" if method.class_specific else "how tokens mix"
    return {"explains": f"{explains}, many passes" if method.many_passes else explains}


def metrics(as_json: Json = False) -> None:
    """List the metrics of `alti bench` and their options."""
    from alti.experiments.bench import metrics_of

    _list("metric", list(metrics_of()), as_json)


def _list(
    kind: str,
    entries: list[tuple[str, dict[str, Any], str]],
    as_json: bool,
    *,
    about: Sequence[dict[str, Any]] | None = None,
) -> None:
    """Print a table of names, options and summaries, with other columns between."""
    rows = []
    for (name, options, summary), more in zip(entries, about or [{}] * len(entries), strict=True):
        text = " ".join(f"{key}={default}" for key, default in options.items())
        shown = options if as_json else text
        rows.append({kind: name, **more, "options": shown, "what": summary})
    table(rows, as_json)
