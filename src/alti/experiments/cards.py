"""What a training run leaves behind: the model, and a card that says how it was made."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError

from alti._errors import LoadError
from alti._files import write_whole
from alti.experiments.resuming import Run

CARD = "card.json"
STEPS = "steps"  # folder for the states of an unfinished run
TORCH_SAVE = ("inline_container", "iostream error")  # parts of torch.save's error on a full disk


def card_of(run: Run, **measured: Any) -> dict[str, Any]:
    """What was trained, what came of it, and by which versions."""
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return {**run, **measured, **versions}


def finish(trainer: Any, folder: Path, card: dict[str, Any], tokenizer: Any = None) -> None:
    """Save the model, then its card; only then delete the states that a run could resume from."""
    with writing(folder):
        trainer.save_model(str(folder))
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        write_whole(folder / CARD, (json.dumps(card, indent=2) + "\n").encode())
    shutil.rmtree(folder / STEPS, ignore_errors=True)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """A full disk is one error, whichever library notices it."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(part in str(error) for part in TORCH_SAVE):
            raise
        reason = " ".join(str(error).split())[:200]
        raise LoadError(
            f"{folder} could not be written ({reason}): "
            "free some space, and run the same command again to resume"
        ) from error
