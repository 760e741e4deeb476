"""Many texts, on this machine or on a Ray cluster, into a folder that a stopped run goes on with.

>>> found = alti.engines.explain("texts.jsonl", "results", method="consensus")
>>> print(found["3"])
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from alti._errors import UsageError
from alti.engines.compute import Asked, Loading
from alti.engines.data import Data
from alti.engines.local import Engine, Local
from alti.engines.ray import Ray
from alti.engines.reading import Results, results
from alti.engines.running import Plan, Progress, run

__all__ = [
    "Asked",
    "Data",
    "Loading",
    "Local",
    "Plan",
    "Progress",
    "Ray",
    "Results",
    "engine_of",
    "explain",
    "results",
    "run",
]

ENGINES = ("local", "ray")


def explain(
    data: Any,
    out: str | Path,
    *,
    model: Any = None,
    method: str = "alti",
    engine: str | Engine = "local",
    split: str | None = None,
    text_column: str | None = None,
    pair_column: str | None = None,
    id_column: str | None = None,
    top_k: int | None = None,
    batch_size: int = 32,
    shard_rows: int | None = None,
    device: str = "auto",
    dtype: str | None = None,
    graphs: bool = False,
    trust_remote_code: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
    **options: Any,
) -> Results:
    """Explain many texts into a folder of Parquet files; the same call goes on where it stopped.

    `data` is a file (text, JSONL, CSV, Parquet), a folder of such, a `datasets.Dataset` or its
    name on the hub, a table, or a list of texts. `engine` is "local", "ray", or
    `Ray(address=…, actors=…, gpus=…)`. `options` are those of `Model.explain_all`, among them the
    method's own. A text that cannot be explained keeps its error, and the others go on.

    >>> texts = ["A clever film.", "A dull film."]
    >>> found = alti.engines.explain(texts, "results", model=model, top_k=5)
    >>> found["1"].top(2)
    """
    chosen = engine_of(engine) if isinstance(engine, str) else engine
    if not isinstance(chosen, Local) and not isinstance(model, str | Path | None):
        raise UsageError(
            f"model is a {type(model).__name__}, and every actor loads its own: give a name or a "
            "folder"
        )
    if isinstance(chosen, Ray):
        device = chosen.device(device)
    plan = Plan(
        Data(data, split, text_column, pair_column, id_column),
        Loading(model, device, dtype, graphs, trust_remote_code),
        Asked({"method": method, **options}, batch_size, top_k),
        shard_rows,
    )
    for done in run(plan, Path(out), chosen):
        progress(done)
    return results(out)


def engine_of(
    name: str, address: str | None = None, actors: int | None = None, gpus: float = 0
) -> Engine:
    """An engine by its name; what only Ray has is refused of another."""
    if name not in ENGINES:
        raise UsageError(f"engine {name!r} does not exist: choose from {', '.join(ENGINES)}")
    if name == "ray":
        return Ray(address, actors, gpus)
    if address is not None or actors is not None or gpus:
        raise UsageError("--address, --actors and --gpus go with --engine ray: add it")
    return Local()
