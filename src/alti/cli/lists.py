"""Commands that list what there is."""

from typing import Annotated, Any

import typer

from alti import FAMILIES, Family
from alti.cli.console import table
from alti.cli.shared import Json
from alti.families import REFUSED

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

    entries = [(name, method.options, method.summary) for name, method in METHODS.items()]
    _list("method", entries, as_json)


def metrics(as_json: Json = False) -> None:
    """List the metrics of `alti bench` and their options."""
    from alti.experiments.bench import metrics_of

    _list("metric", list(metrics_of()), as_json)


def _list(kind: str, entries: list[tuple[str, dict[str, Any], str]], as_json: bool) -> None:
    """Print a table of names, options and summaries."""
    rows = []
    for name, options, summary in entries:
        text = " ".join(f"{key}={default}" for key, default in options.items())
        rows.append({kind: name, "options": options if as_json else text, "what": summary})
    table(rows, as_json)
