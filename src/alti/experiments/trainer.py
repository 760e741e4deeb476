"""transformers' Trainer made repeatable: same batches, same sums, states that can be resumed."""

import os
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NoReturn

import numpy as np
import torch
import transformers
from torch.utils.data import Sampler
from transformers.trainer_callback import PrinterCallback

from alti._errors import AltiError, LoadError
from alti.experiments.resuming import Run, latest, seal
from alti.model import pretrained

Watch = Callable[[int, int], None]  # step, steps

IGNORED = -100  # a label that no loss reads
POOL = 50  # batches whose texts are sorted by length


class ByLength(Sampler[int]):
    """Texts of similar length together, batches in random order.

    The order is the same for the same seed and epoch. transformers' own sampler draws from the
    global generator, so a resumed run would see other batches.
    """

    def __init__(self, lengths: list[int], batch: int, seed: int) -> None:
        self.lengths = lengths
        self.batch = batch
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = random.Random(f"{self.seed} {self.epoch}")
        order = list(range(len(self.lengths)))
        generator.shuffle(order)
        pools = _slices(order, POOL * self.batch)
        ranked = [i for pool in pools for i in sorted(pool, key=lambda i: self.lengths[i])]
        batches = _slices(ranked, self.batch)
        # a short batch stays last: elsewhere it would shift the borders of those after it
        short = [batches.pop()] if len(batches[-1]) < self.batch else []
        generator.shuffle(batches)
        return (i for batch in [*batches, *short] for i in batch)


def _slices(items: list[int], size: int) -> list[list[int]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


class RepeatableTrainer(transformers.Trainer):
    """Takes its batches from ByLength, and stops at a loss that is not finite."""

    def _get_train_sampler(self, train_dataset: Any = None) -> ByLength:
        lengths = [len(item["input_ids"]) for item in self.train_dataset.items]
        return ByLength(lengths, self.args.per_device_train_batch_size, self.args.seed)

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(*args, **kwargs)
        if not loss.isfinite().all():
            _stop("loss", self.args, self.state.global_step + 1, self.state.max_steps)
        return loss


class Keeper(transformers.TrainerCallback):
    """Keeps the last state that is complete and whose weights are finite.

    The loss of a step belongs to the weights before it, so weights are checked before each save.
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if control.should_save or state.global_step >= state.max_steps:
            finite = (tensor.isfinite().all() for tensor in model.state_dict().values())
            if not all(finite):
                _stop("model", args, state.global_step, state.max_steps)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        seal(Path(args.output_dir) / f"checkpoint-{state.global_step}", self.run)


class Watcher(transformers.TrainerCallback):
    """Reports every step."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.watch(state.global_step, state.max_steps)


def require_accelerate() -> None:
    """The Trainer's own message is a page long."""
    if find_spec("accelerate") is None:
        raise LoadError(
            "training needs accelerate, which is not installed: pip install 'alti[train]'"
        )


def fit(trainer: transformers.Trainer, state: str | None) -> None:
    """Train, from a saved state if there is one; warn if the result is not repeatable."""
    try:
        with _repeatable(trainer.args.device):
            trainer.train(resume_from_checkpoint=state)
    except UnpicklingError as error:
        raise LoadError(
            f"the files in {state} are {pretrained.PICKLED}; delete that folder"
        ) from error
    except RuntimeError as error:
        changed = state is None and trainer.state.global_step > 0  # no state restores the weights
        if changed or "deterministic" not in str(error):
            raise
        reason = str(error).splitlines()[0][:200]
        warnings.warn(
            f"a GPU does not repeat this model's training to the bit ({reason}): trained anyway",
            stacklevel=3,
        )
        trainer.train(resume_from_checkpoint=state)


@contextmanager
def _repeatable(device: torch.device) -> Iterator[None]:
    """Makes a GPU add in the same order every time, as a CPU does."""
    if device.type != "cuda":
        yield
        return
    # without it, matrix products may add in any order
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    settings: Any = torch.utils.deterministic
    mode_before = torch.get_deterministic_debug_mode()
    fill_before = settings.fill_uninitialized_memory
    try:
        torch.use_deterministic_algorithms(True)
        settings.fill_uninitialized_memory = False  # only helps to find bugs, and takes time
        yield
    finally:
        torch.set_deterministic_debug_mode(mode_before)
        settings.fill_uninitialized_memory = fill_before


def _stop(what: str, args: Any, step: int, steps: int) -> NoReturn:
    state = latest(Path(args.output_dir))
    saved = "nothing was saved before" if state is None else f"{state} is from before"
    raise AltiError(
        f"the {what} is not finite at step {step} of {steps}, and {saved}: "
        "train with a smaller rate (--rate), into another folder"
    )


def accuracy(evaluated: Any) -> dict[str, float]:
    """The share of labels that were predicted."""
    predicted = np.argmax(evaluated.predictions, -1)
    labelled = evaluated.label_ids != IGNORED
    return {"accuracy": float((predicted == evaluated.label_ids)[labelled].mean())}


def without_printing(trainer: RepeatableTrainer) -> RepeatableTrainer:
    """The Trainer prints its progress on stdout, which is for results."""
    trainer.remove_callback(PrinterCallback)
    return trainer
