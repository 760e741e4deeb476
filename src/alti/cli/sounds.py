"""Sounds on the command line: WAV files."""

import wave
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alti._errors import LoadError, UsageError

if TYPE_CHECKING:
    import numpy as np

Audio = Annotated[
    Path | None,
    typer.Option("--audio", help="A WAV file instead of a TEXT, for a model that hears."),
]


def sound(file: Path) -> dict[str, Any]:
    """What `Model.explain` takes of a WAV file: its numbers, and how many make a second."""
    if not file.is_file():
        problem = "is not a file" if file.exists() else "does not exist"
        raise UsageError(f"--audio {file} {problem}: give a WAV file")
    try:
        with wave.open(str(file), "rb") as opened:
            content = opened.readframes(opened.getnframes())
            numbers = _numbers(content, opened.getsampwidth())
            channels, rate = opened.getnchannels(), opened.getframerate()
    except (wave.Error, EOFError, OSError) as error:
        raise LoadError(
            f"--audio {file} could not be read ({error}): save it as a WAV file of whole numbers"
        ) from error
    return {"audio": numbers if channels == 1 else numbers.reshape(-1, channels), "rate": rate}


def _numbers(content: bytes, width: int) -> "np.ndarray[Any, Any]":
    """Whole numbers of 1 to 4 bytes as numbers between −1 and 1; those of one byte have no sign."""
    import numpy as np

    if width == 1:
        return (np.frombuffer(content, np.uint8).astype(np.float32) - 128) / 128
    each = np.frombuffer(content, np.uint8).reshape(-1, width)
    whole = np.zeros((len(each), 4), np.uint8)
    whole[:, 4 - width :] = each  # the highest bytes, so that the sign is in its place
    return whole.view("<i4")[:, 0].astype(np.float32) / 2**31
