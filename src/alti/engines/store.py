"""A folder of Parquet files, one per shard, that a run adds to until all shards are there.

A shard is written under its own number, completely or not at all. So whatever was killed, and
whoever writes a shard a second time, every row is there once.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alti._characters import note
from alti._errors import LoadError, UsageError
from alti._files import write_whole
from alti.experiments.resuming import require_same
from alti.experiments.store import lock

if TYPE_CHECKING:
    import pyarrow

FORMAT = 1
RUN = "_run.json"  # what the shards were asked for; other readers of Parquet pass over _ and .
MODEL = "_model.json"  # and of which model, as the first worker that had loaded it says
LOCK = ".lock"
PART = "part-{:06d}.parquet"
SHARD_ROWS = 512


@dataclass(frozen=True, slots=True)
class Store:
    """The folder of a run."""

    folder: Path

    def part(self, number: int) -> Path:
        return self.folder / PART.format(number)

    def parts(self) -> list[Path]:
        """The files of the shards that are there, in order."""
        return sorted(self.folder.glob(PART.format(0).replace("000000", "*[0-9]")))

    def run(self) -> dict[str, Any]:
        return _read(self.folder / RUN)

    def model(self) -> dict[str, Any]:
        return _read(self.folder / MODEL)

    def finished(self, otherwise: str = "will be computed again") -> dict[int, int]:
        """The shards that are complete, each with its rows; what becomes of a damaged one."""
        counts = {}
        for file in self.parts():
            try:
                counts[int(file.stem.rpartition("-")[2])] = _rows_in(file)
            except (OSError, ValueError):
                note(f"{file} is damaged, and {otherwise}")
        return counts

    def write(self, number: int, rows: "pyarrow.Table") -> None:
        """Add a shard, flushed to disk."""
        from pyarrow import parquet

        content = BytesIO()
        parquet.write_table(rows, content, compression="zstd")
        write_whole(self.part(number), content.getvalue())

    def claim(self, model: dict[str, str]) -> None:
        """Say of which model the shards are; whoever comes later must have the same."""
        place = self.folder / MODEL
        draft = self.folder / f".alti-{os.getpid()}-{os.urandom(4).hex()}.partial"
        try:
            write_whole(draft, json.dumps(model).encode())
            os.link(draft, place)  # unlike a rename, it replaces nothing
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            if not place.exists():
                write_whole(place, json.dumps(model).encode())
        finally:
            draft.unlink(missing_ok=True)
        before = self.model()
        if before.get("fingerprint") != model["fingerprint"]:
            raise UsageError(
                f"{self.folder} holds results of another model ({before.get('name')}, of other "
                "weights or another dtype): name another folder, or that model"
            )


@contextmanager
def opened(folder: Path, run: dict[str, Any]) -> Iterator[Store]:
    """A folder that is new, holds nothing yet, or holds shards of the same run."""
    if (folder.exists() and not folder.is_dir()) or not folder.parent.is_dir():
        raise UsageError(
            f"{folder} cannot be a folder of results: name one that is new or there already"
        )
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be made ({error.strerror}): name a folder that can be written to"
        ) from error
    store = Store(folder)
    with (folder / LOCK).open("ab", buffering=0) as held:
        lock(held, folder)
        _require_ours(store)
        if store.parts():
            require_same(store.run(), _plain(run), folder)
        else:
            (folder / MODEL).unlink(missing_ok=True)
            write_whole(folder / RUN, json.dumps(run, indent=1).encode())
        for rest in folder.glob(".alti-*.partial"):  # of a run that was killed
            rest.unlink(missing_ok=True)
        yield store


def existing(folder: str | Path) -> Store:
    """A folder that a run has written."""
    store = Store(Path(folder))
    if not store.folder.exists():
        raise UsageError(
            f"the folder {folder} does not exist: give one that alti explain --out has written"
        )
    if not (store.folder / RUN).is_file():
        raise LoadError(
            f"{folder} is no folder of results: give one that alti explain --out has written"
        )
    return store


def _require_ours(store: Store) -> None:
    """Refuse a folder with files of somebody else; what the system hides does not count."""
    others = [file for file in store.folder.iterdir() if not file.name.startswith(".")]
    if others and not (store.folder / RUN).is_file():
        raise UsageError(
            f"{store.folder} holds other files, such as {others[0].name}: name a new folder"
        )


def _plain(run: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(run))
    return plain


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(f"{file} is missing or damaged: run again into a new folder") from error
    if not isinstance(content, dict):
        raise LoadError(f"{file} is damaged: run again into a new folder")
    return content


def _rows_in(file: Path) -> int:
    """The rows of a complete file; an error for one that is not."""
    from pyarrow import parquet

    return int(parquet.read_metadata(file).num_rows)
