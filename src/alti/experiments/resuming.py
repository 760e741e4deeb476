"""The states of a training run that it can resume from, if they are complete and its own."""

import hashlib
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

from alti._errors import UsageError
from alti._files import write_whole

RECIPE = "recipe.json"  # beside the states: the run that they belong to
SEAL = "alti.json"  # in a state, written last: its run, and a hash of each other file

Run = dict[str, Any]  # a recipe, and a hash of its data


def recorded(file: Path, run: Run) -> Run | None:
    """What a file says about a run; None if it is missing or damaged. Another run is refused."""
    content = _read(file)
    if content is None and file.is_file():
        warnings.warn(f"{file} is empty or damaged, and will be rewritten", stacklevel=3)
    if content is not None:
        require_same(content, run, file.parent)
    return content


def last_state(steps: Path, run: Run) -> Path | None:
    """The last complete state of this run, to resume from.

    A state itself says which run it belongs to, so a damaged recipe beside it does no harm. A
    state that is damaged, or incomplete because the run was killed, is skipped.
    """
    recorded(steps / RECIPE, run)
    damaged = []
    complete = None
    for state in reversed(_states(steps)):
        if _is_complete(state, run):
            complete = state
            break
        damaged.append(str(state))
    if damaged:
        outcome = f"resuming from {complete.name}" if complete else "starting again"
        warnings.warn(f"damaged or unfinished: {', '.join(damaged)}; {outcome}", stacklevel=3)
    steps.mkdir(exist_ok=True)
    write_whole(steps / RECIPE, json.dumps(run).encode())
    return complete


def seal(state: Path, run: Run) -> None:
    """Declare a state complete, once it is on disk, and delete the states before it."""
    content = {**run, "files": _hashes(state)}
    write_whole(state / SEAL, json.dumps(content).encode())
    for other in _states(state.parent):
        if other != state:
            shutil.rmtree(other, ignore_errors=True)


def latest(steps: Path) -> Path | None:
    """The last state that was sealed."""
    sealed = [state for state in _states(steps) if (state / SEAL).is_file()]
    return sealed[-1] if sealed else None


def _states(steps: Path) -> list[Path]:
    numbered = [state for state in steps.glob("checkpoint-*") if state.name[11:].isdecimal()]
    return sorted(numbered, key=lambda state: int(state.name[11:]))


def _is_complete(state: Path, run: Run) -> bool:
    content = _read(state / SEAL)
    if content is None or content.get("files") != _hashes(state):
        return False
    require_same(content, run, state)
    return True


def _hashes(state: Path) -> dict[str, str]:
    """A hash of each file of a state; each is flushed to disk first."""
    hashes = {}
    for file in sorted(state.iterdir()):
        if file.is_file() and file.name != SEAL:
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
                hashes[file.name] = hashlib.file_digest(opened, "sha256").hexdigest()
    return hashes


def _read(file: Path) -> Run | None:
    """The JSON object in a file; None if there is none."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def require_same(content: Run, run: Run, folder: Path) -> None:
    """Refuse to go on with what another run wrote."""
    if different := [key for key, value in run.items() if content.get(key) != value]:
        entries = ", ".join(f"{key} = {content.get(key)!r}" for key in different)
        raise UsageError(
            f"{folder} belongs to another run ({entries}): name another folder, or delete that one"
        )
