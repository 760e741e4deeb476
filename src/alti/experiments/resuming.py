"""What a training run leaves behind to go on from: states that prove to be whole and its own."""

import hashlib
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

from alti._errors import UsageError
from alti._files import write_whole

RECIPE = "recipe.json"  # beside the states: the run that they are of
SEAL = "alti.json"  # in a state, written last: its run, and a hash of each other file

Run = dict[str, Any]  # a recipe, and a hash of its data


def recorded(file: Path, run: Run) -> Run | None:
    """What a file says about a run; None where it is missing or damaged. Another run is refused."""
    content = _read(file)
    if content is None and file.is_file():
        warnings.warn(f"{file} is empty or damaged, and is written anew", stacklevel=3)
    if content is not None:
        _require_same(content, run, file.parent)
    return content


def last_state(steps: Path, run: Run) -> Path | None:
    """The last whole state of this run, to go on from.

    A state says itself which run it is of, so a damaged recipe beside it costs nothing. A damaged
    state, or half of one that a killed run left, is passed over.
    """
    recorded(steps / RECIPE, run)
    damaged, whole = [], None
    for state in reversed(_states(steps)):
        if _is_whole(state, run):
            whole = state
            break
        damaged.append(str(state))
    if damaged:
        then = f"going on from {whole.name}" if whole else "starting anew"
        warnings.warn(f"damaged or unfinished: {', '.join(damaged)}; {then}", stacklevel=3)
    steps.mkdir(exist_ok=True)
    write_whole(steps / RECIPE, json.dumps(run).encode())
    return whole


def seal(state: Path, run: Run) -> None:
    """Declare a state whole, once it is on the disk; then the states before it are not needed."""
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


def _is_whole(state: Path, run: Run) -> bool:
    content = _read(state / SEAL)
    if content is None or content.get("files") != _hashes(state):
        return False
    _require_same(content, run, state)
    return True


def _hashes(state: Path) -> dict[str, str]:
    """A hash of each file of a state, which is on the disk afterwards."""
    hashes = {}
    for file in sorted(state.iterdir()):
        if file.is_file() and file.name != SEAL:
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
                hashes[file.name] = hashlib.file_digest(opened, "sha256").hexdigest()
    return hashes


def _read(file: Path) -> Run | None:
    """The JSON object in a file; None where there is none."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _require_same(content: Run, run: Run, folder: Path) -> None:
    if other := [key for key, value in run.items() if content.get(key) != value]:
        were = ", ".join(f"{key} = {content.get(key)!r}" for key in other)
        then = "name another folder, or take that one away"
        raise UsageError(f"{folder} is of another run ({were}): {then}")
