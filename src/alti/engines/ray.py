"""Work on Ray: an actor class for anybody's own pipeline, and the engine of `--engine ray`.

`Explain` needs no Ray to be imported; a cluster does, and is asked for in one sentence.
"""

import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from alti._errors import AltiError, LoadError, UsageError
from alti.engines.compute import Asked, Loading, rows
from alti.engines.data import Data
from alti.engines.local import Done, Item
from alti.engines.rows import schema, table

if TYPE_CHECKING:
    import pyarrow

QUIET = {  # C++ lines are not for the user, and nothing is reported to anybody
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_USAGE_STATS_ENABLED": "0",
}
PATIENCE = 5  # seconds; Ray itself asks for minutes where nobody answers
HIDDEN = ("number", "more", "segments", "ids", "special")  # columns for reading a folder back


class Explain:
    """Explains batches of texts: a callable class for `map_batches` of Ray Data.

    The columns of the batch stay; label, probability, target, tokens, offsets, scores and error
    are added. `model` is a folder or a name, loaded once by each actor. `top_k` keeps the tokens
    that count most, `fingerprint` (`Model.fingerprint()`) refuses another model. `options` are
    those of `Model.explain_all`: target, groups, truncate, or the method's own. A pipeline with it
    is in docs/scale.md, "In your own pipeline"; alone:

    >>> Explain(top_k=3)({"text": ["A clever film."], "stars": [4]}).column_names
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        method: str = "alti",
        text_column: str = "text",
        pair_column: str | None = None,
        batch_size: int = 32,
        top_k: int | None = None,
        device: str = "auto",
        dtype: str | None = None,
        graphs: bool = False,
        trust_remote_code: bool = False,
        fingerprint: str | None = None,
        **options: Any,
    ) -> None:
        self.asked = Asked({"method": method, **options}, batch_size, top_k)
        self.columns = text_column, pair_column
        self.model = Loading(model, device, dtype, graphs, trust_remote_code).load()
        if fingerprint not in (None, self.model.fingerprint()):
            raise UsageError(f"{self.model.name} is another model than fingerprint says")
        self.schema = schema(wide=self.model.dtype == "float64", layers=bool(options.get("layers")))

    def __call__(self, batch: Any) -> "pyarrow.Table":
        """The batch (a table, a data frame or a dict of arrays) with what was found."""
        import pyarrow as pa

        given = batch if isinstance(batch, pa.Table) else _table(batch)
        text, pair = self.columns
        entries = list(Data(given, text=text, pair=pair, id=text).entries())
        made = table(rows(self.model, entries, self.asked), self.schema)
        kept = [name for name in self.schema.names if name not in (*HIDDEN, "id", "text", "pair")]
        for name in kept:
            given = given.drop_columns(name) if name in given.column_names else given
            given = given.append_column(name, made.column(name))
        return given


def _table(batch: Any) -> "pyarrow.Table":
    import pyarrow as pa

    if hasattr(batch, "columns"):
        return pa.Table.from_pandas(batch, preserve_index=False)
    return pa.table({name: list(values) for name, values in batch.items()})


@dataclass(frozen=True, slots=True)
class Ray:
    """Actors of a Ray cluster, or of a Ray that is started on this machine for the run."""

    address: str | None = None  # None: RAY_ADDRESS, or a Ray of our own
    actors: int | None = None  # None: one per GPU, or up to four per node
    gpus: float = 0  # of each actor

    def __post_init__(self) -> None:
        if self.actors is not None and self.actors < 1:
            raise UsageError(f"actors = {self.actors} is not a number of actors: give 1 or more")
        if self.gpus < 0:
            raise UsageError(f"gpus = {self.gpus} is not a number of GPUs: give 0 or more")

    def device(self, asked: str) -> str:
        """Where an actor computes: one without a GPU of its own does not look for one."""
        return "cpu" if asked == "auto" and not self.gpus else asked

    def reach(self) -> None:
        """Raise where there is no Ray, or nobody at the address."""
        if not library().is_initialized():
            _require_answer(self.address or os.environ.get("RAY_ADDRESS", ""))

    def spread(
        self,
        make: Callable[[], Callable[[Item], Done]],
        items: Callable[[], Iterable[Item]],
        *,
        ordered: bool = False,
    ) -> Iterator[Done]:
        """What the actors make of the items, as they come or in order."""
        self.reach()
        with _session(self.address) as ray:
            share = self._share(ray)
            actors = _read(ray, items, ordered).map_batches(
                Actor,
                fn_constructor_args=(make, share["num_cpus"]),
                batch_size=1,
                batch_format="pyarrow",
                compute=ray.data.ActorPoolStrategy(size=share.pop("actors")),
                **share,
            )
            with _sentence(ray):
                for row in actors.iter_rows():
                    done = pickle.loads(row["done"])
                    if isinstance(done, AltiError):
                        raise done
                    yield done

    def _share(self, ray: Any) -> dict[str, Any]:
        """How many actors there are, and what each of them has."""
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        nodes = [node for node in nodes if node.get("CPU")]
        cores = min((int(node["CPU"]) for node in nodes), default=1)
        gpus = int(sum(node.get("GPU", 0) for node in nodes))
        if self.gpus > gpus:
            raise UsageError(
                f"each actor wants GPUs ({self.gpus:g}), and the cluster has {gpus}: leave --gpus "
                "out, or add nodes that have some"
            )
        count = self.actors or (int(gpus / self.gpus) if self.gpus else min(cores, 4) * len(nodes))
        of_a_node = -(-count // max(1, len(nodes)))
        share = max(1, cores // of_a_node) if of_a_node <= cores else cores / of_a_node
        return {"actors": count, "num_cpus": share, "num_gpus": self.gpus}


class Actor:
    """A worker in a process of its own; errors that have a sentence are sent as results."""

    def __init__(self, make: Callable[[], Callable[[Any], Any]], cores: float) -> None:
        import torch

        torch.set_num_threads(max(1, int(cores)))
        self.work: Callable[[Any], Any]
        try:
            self.work = make()
        except AltiError as error:
            self.work = _raising(error)

    def __call__(self, batch: "pyarrow.Table") -> dict[str, list[bytes]]:
        (item,) = batch["item"].to_pylist()
        try:
            done = self.work(pickle.loads(item))
        except AltiError as error:
            done = error
        return {"done": [pickle.dumps(done)]}


def _raising(error: AltiError) -> Callable[[Any], Any]:
    def work(item: Any) -> Any:
        raise error

    return work


def _read(ray: Any, items: Callable[[], Iterable[Any]], ordered: bool) -> Any:
    """The items as a dataset, each a block of its own, read as they are needed.

    They are read by one task without a core, on the driver's node, where their files are.
    """
    import pyarrow as pa

    source = import_module("ray.data.datasource")
    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.target_max_block_size = 1  # bytes: a block is an item, and any actor may take it
    context.execution_options.preserve_order = ordered

    def blocks() -> Iterator[pa.Table]:
        for item in items():
            yield pa.table({"item": [pickle.dumps(item)]})

    class Items(source.Datasource):  # type: ignore[misc, name-defined]  # Ray is imported late
        def get_name(self) -> str:
            return "Texts"

        def estimate_inmemory_data_size(self) -> None:
            return None

        def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[Any]:
            unknown = dict.fromkeys(("num_rows", "size_bytes", "input_files", "exec_stats"))
            about = import_module("ray.data.block").BlockMetadata(**unknown)
            return [source.ReadTask(blocks, about)]

    here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
    with ray.data.DataContext.current(context):
        return ray.data.read_datasource(
            Items(), override_num_blocks=1, num_cpus=0, label_selector=here
        )


@contextmanager
def _session(address: str | None) -> Iterator[Any]:
    """A Ray to work on: the one that this process has, a cluster, or one of our own."""
    ray = library()
    if ray.is_initialized():
        yield ray
        return
    before = {name: os.environ.get(name) for name in QUIET}
    os.environ.update({name: os.environ.get(name, value) for name, value in QUIET.items()})
    try:
        _start(ray, address)
        yield ray
    finally:
        ray.shutdown()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _start(ray: Any, address: str | None) -> None:
    import logging

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        with _unseen():
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=None if address else False,
            )
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise _unreachable(address or "this machine", error) from error


def _require_answer(address: str) -> None:
    """Raise where an address names a host and a port at which nobody listens."""
    if address in ("", "auto", "local"):
        return
    try:
        place = urlsplit(address if "://" in address else f"//{address}")
        host, port = place.hostname, place.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise UsageError(f"address {address!r} is not one of Ray: give HOST:PORT, or auto")
    try:
        socket.create_connection((host, port), PATIENCE).close()
    except OSError as error:
        raise _unreachable(address, error.strerror or error) from error


def _unreachable(place: str, error: object) -> LoadError:
    reason = " ".join(str(error).split())[:200]
    return LoadError(
        f"no Ray could be reached at {place} ({reason}): give the address of a cluster "
        "(--address), or leave it out to start one here"
    )


@contextmanager
def _unseen() -> Iterator[None]:
    """Ray's C++ part writes to the process's stderr itself, if only that it will write less."""
    sys.stderr.flush()
    kept = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def library() -> Any:
    """Ray with its Data, which not every user needs."""
    try:
        import_module("ray.data")
        return import_module("ray")
    except ImportError as error:
        raise LoadError(
            "the engine ray needs the library Ray: pip install 'alti[ray]', or use the engine local"
        ) from error


@contextmanager
def _sentence(ray: Any) -> Iterator[None]:
    """What Ray raises, in one sentence; what was written stays."""
    try:
        yield
    except ray.exceptions.RayError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        reason = lines[-1].strip()[:300] if lines else type(error).__name__
        raise AltiError(
            f"Ray stopped the run ({reason}): run the same command again to go on"
        ) from error
