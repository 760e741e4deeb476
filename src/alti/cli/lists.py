"""Commands that list what there is."""

from typing import Any

from alti import FAMILIES
from alti.cli.console import table
from alti.cli.shared import Json


def families(as_json: Json = False) -> None:
    """List the model families that can be read."""
    rows = [
        {
            "family": name,
            "reads": " + ".join(
                stack.blocks for stack in family.stacks if not (stack.when or "").startswith("not ")
            ),
            "classifier_reads": family.pool,
            "second_norm": any(site.ffn_norm for stack in family.stacks for site in stack.sites),
        }
        for name, family in sorted(FAMILIES.items())
    ]
    table(rows, as_json)


def methods(as_json: Json = False) -> None:
    """List the attribution methods and their options."""
    from alti.methods import METHODS, options_of, summary_of

    own = {
        name: {key: x for key, x in options_of(name).items() if key != "layers"} for name in METHODS
    }
    _list("method", [(name, own[name], summary_of(name)) for name in METHODS], as_json)


def metrics(as_json: Json = False) -> None:
    """List the metrics of `alti bench` and their options."""
    from alti.experiments.bench import metrics_of

    _list("metric", list(metrics_of()), as_json)


def _list(kind: str, found: list[tuple[str, dict[str, Any], str]], as_json: bool) -> None:
    """A table of names, options and what they are for."""
    rows = []
    for name, own, what in found:
        shown = own if as_json else " ".join(f"{key}={default}" for key, default in own.items())
        rows.append({kind: name, "options": shown, "what": what})
    table(rows, as_json)
