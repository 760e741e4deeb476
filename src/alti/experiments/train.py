"""Fine-tunes a classifier: of a text, or of the masked position in it. transformers' Trainer does the work."""

import json
import os
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal, NoReturn

import numpy as np
import torch
import transformers
from safetensors import SafetensorError
from torch.utils.data import Dataset, Sampler
from transformers.trainer_callback import PrinterCallback

from alti._errors import AltiError, LoadError, UsageError
from alti._files import write_whole
from alti.experiments.data import Example, fingerprint, has_splits, read
from alti.experiments.resuming import Run, last_state, latest, recorded, seal
from alti.model import pretrained
from alti.model.loading import find

Task = Literal["text", "mask"]
Watch = Callable[[int, int], None]  # step, steps

AUTO = {"text": "AutoModelForSequenceClassification", "mask": "AutoModelForTokenClassification"}
IGNORED = -100  # a label that no loss reads
CARD = "card.json"
TORCH_SAVE = ("inline_container", "iostream error")  # what torch.save says of a full disk
POOL = 50  # batches whose texts are sorted by length
SAVES = 20  # times the state of an unfinished run is written; the last is kept


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is trained on what, and how.

    The same recipe gives the same weights, to the bit, on the same machine, or a warning says that it does not.
    """

    checkpoint: str
    data: str
    split: str | None = "train"
    validation: str | None = "validation"  # split that accuracy is measured on; None: not measured
    text: str | None = None  # column
    label: str | None = None
    pair: str | None = None  # column of the second text
    task: Task = "text"  # "mask": the head reads the mask token of each text
    mask_token: str | None = None  # how the data writes it, where it writes it its own way
    first: int | None = None  # only so many rows
    epochs: float = 3.0
    batch: int = 32
    rate: float = 2e-5
    warmup: float = 0.1  # share of the steps
    decay: float = 0.01
    tokens: int = 128  # longer texts are cut
    seed: int = 0
    trust_remote_code: bool = False  # whether code that comes with the checkpoint may run

    def __post_init__(self) -> None:
        if self.task not in AUTO:
            raise UsageError(f"task = {self.task!r} does not exist: choose text or mask")
        for name in ("epochs", "batch", "rate", "tokens", "first"):
            if (given := getattr(self, name)) is not None and not given > 0:
                raise UsageError(f"{name} = {given!r} trains nothing: give a number above 0")


class _Texts(Dataset[dict[str, Any]]):
    """Texts as tokens, with their labels."""

    def __init__(self, rows: list[tuple[Example, int]], tokenizer: Any, recipe: Recipe) -> None:
        written, own = recipe.mask_token, tokenizer.mask_token
        texts = [row.text.replace(written, own) if written else row.text for row, _ in rows]
        pairs = [row.pair for row, _ in rows] if recipe.pair else None
        found = tokenizer(texts, pairs, truncation=True, max_length=recipe.tokens) if texts else {}
        self.items: list[dict[str, Any]] = []
        self.unmasked = 0  # texts without exactly one mask token, which are left out
        for i, (_, label) in enumerate(rows):
            item = {name: found[name][i] for name in found}
            if recipe.task == "text":
                self.items.append(item | {"labels": label})
                continue
            masked = [token == tokenizer.mask_token_id for token in item["input_ids"]]
            if sum(masked) == 1:
                self.items.append(
                    item | {"labels": [label if here else IGNORED for here in masked]}
                )
            else:
                self.unmasked += 1

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.items[index]


def train(
    recipe: Recipe, out: str | Path, *, saves: int = SAVES, watch: Watch | None = None
) -> dict[str, Any]:
    """Fine-tune a checkpoint into the folder `out` and return its card; a run that was stopped goes on.

    `out` holds the model, its tokenizer and card.json; `out`/steps the state of a run that is not finished, which is
    written `saves` times (0: never).
    """
    find(recipe.checkpoint)
    recipe, folder = _fitting(recipe), _folder(out)
    if saves < 0:
        raise UsageError(f"saves = {saves} is no number of times: give 0 (never) or more")
    of = {**_recorded(recipe), "data_fingerprint": fingerprint(recipe.data)}
    if (card := recorded(folder / CARD, of)) is not None:
        return card
    tokenizer = pretrained.tokenizer_of(recipe.checkpoint, recipe.trust_remote_code)
    if recipe.task == "mask" and tokenizer.mask_token is None:
        raise UsageError(
            f"{recipe.checkpoint} has no mask token, which task = 'mask' reads: choose another checkpoint"
        )
    rows = _rows(recipe, recipe.split)
    names = sorted(
        {row.label for row in rows if row.label is not None},
        key=lambda name: (isinstance(name, str), name),
    )
    if len(names) < 2:
        raise UsageError(f"{recipe.data} has the labels {names}: training needs two or more")
    numbers: dict[int | str | None, int] = {name: i for i, name in enumerate(names)}
    held = _rows(recipe, recipe.validation) if recipe.validation else []
    if unknown := {row.label for row in held} - numbers.keys():
        told = ", ".join(sorted(map(str, unknown)))
        raise UsageError(
            f"the split {recipe.validation} has labels that {recipe.split} has not: {told}"
        )
    _seed(recipe.seed)
    model = _model(recipe, len(names))
    model.config.id2label = {i: str(name) for name, i in numbers.items()}
    model.config.label2id = {str(name): i for name, i in numbers.items()}
    sets = [
        _Texts([(row, numbers[row.label]) for row in part], tokenizer, recipe)
        for part in (rows, held)
    ]
    for split, rows_of, texts in zip(
        (recipe.split, recipe.validation), (rows, held), sets, strict=True
    ):
        if rows_of and not len(texts):
            raise UsageError(
                f"no text of {recipe.data} ({split or 'all rows'}) has exactly one {tokenizer.mask_token}, which "
                "task = 'mask' reads: say how the data writes it with mask_token= (--mask-token)"
            )
    trainer = _trainer(recipe, folder, model, tokenizer, sets, saves, watch)
    trainer.add_callback(_Keeper(of))
    with _writing(folder):
        state = last_state(folder / "steps", of)
        _run(trainer, None if state is None else str(state))
    card = {
        **of,
        "texts": len(sets[0]),
        "texts_without_one_mask": sets[0].unmasked,
        "labels": [str(name) for name in names],
        "accuracy": trainer.evaluate()["eval_accuracy"] if held else None,
        "validation_texts": len(sets[1]),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    _finish(trainer, tokenizer, folder, card)
    return card


def _finish(trainer: Any, tokenizer: Any, folder: Path, card: dict[str, Any]) -> None:
    """Save the model, then say so in its card; only then nothing is left to go on from."""
    with _writing(folder):
        trainer.save_model(str(folder))
        tokenizer.save_pretrained(folder)
        write_whole(folder / CARD, (json.dumps(card, indent=2) + "\n").encode())
    shutil.rmtree(folder / "steps", ignore_errors=True)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """A full disk is one sentence, whichever library notices it."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(mark in str(error) for mark in TORCH_SAVE):
            raise
        reason = " ".join(str(error).split())[:200]
        then = "make room, and the same command goes on"
        raise LoadError(f"{folder} could not be written ({reason}): {then}") from error


def _recorded(recipe: Recipe) -> dict[str, Any]:
    """The settings of a run; older cards have no trust_remote_code."""
    settings = asdict(recipe)
    if not recipe.trust_remote_code:
        del settings["trust_remote_code"]
    return settings


def _fitting(recipe: Recipe) -> Recipe:
    """The recipe; where it names the usual splits and the data has none, one for all of the data."""
    if (recipe.split, recipe.validation) != ("train", "validation") or has_splits(recipe.data):
        return recipe
    warnings.warn(
        f"{recipe.data} has no column 'split': training on all of it, and measuring nothing",
        stacklevel=3,
    )
    return replace(recipe, split=None, validation=None)


def _folder(out: str | Path) -> Path:
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{out} cannot be made a folder for the model ({error.strerror}): name another"
        ) from None
    return Path(out)


def _trainer(
    recipe: Recipe,
    folder: Path,
    model: Any,
    tokenizer: Any,
    sets: list[_Texts],
    saves: int,
    watch: Watch | None,
) -> transformers.Trainer:
    if find_spec("accelerate") is None:  # the Trainer's own message is a page long
        raise LoadError(
            "training needs accelerate, which is not installed: pip install 'alti[train]'"
        )
    steps = max(1, round(recipe.epochs * -(-len(sets[0]) // recipe.batch)))
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "steps"),
        per_device_train_batch_size=recipe.batch,
        per_device_eval_batch_size=4 * recipe.batch,
        num_train_epochs=recipe.epochs,
        learning_rate=recipe.rate,
        weight_decay=recipe.decay,
        warmup_steps=round(recipe.warmup * steps),
        lr_scheduler_type="linear",
        bf16=torch.cuda.is_available() and torch.cuda.is_bf16_supported(),
        save_strategy="steps" if saves else "no",
        save_steps=max(1, steps // saves) if saves else steps,
        seed=recipe.seed,
        data_seed=recipe.seed,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    if recipe.task == "text":
        collator: Any = transformers.DataCollatorWithPadding(tokenizer)
    else:
        collator = transformers.DataCollatorForTokenClassification(
            tokenizer, label_pad_token_id=IGNORED
        )
    trainer = _Trainer(
        model=model,
        args=arguments,
        train_dataset=sets[0],
        eval_dataset=sets[1] if len(sets[1]) else None,
        data_collator=collator,
        compute_metrics=_accuracy,
        callbacks=[_Watcher(watch)] if watch else None,
    )
    trainer.remove_callback(PrinterCallback)  # stdout is for results
    return trainer


def _run(trainer: transformers.Trainer, state: str | None) -> None:
    try:
        with _repeatable(trainer.args.device):
            trainer.train(resume_from_checkpoint=state)
    except UnpicklingError as error:
        sentence = f"the files in {state} are {pretrained.PICKLED}; take that folder away"
        raise LoadError(sentence) from error
    except RuntimeError as error:
        moved = state is None and trainer.state.global_step > 0  # weights that no state puts back
        if moved or "deterministic" not in str(error):
            raise
        why = str(error).splitlines()[0][:200]
        warnings.warn(
            f"a GPU does not repeat this model's training to the bit ({why}): trained anyway",
            stacklevel=3,
        )
        trainer.train(resume_from_checkpoint=state)


@contextmanager
def _repeatable(device: torch.device) -> Iterator[None]:
    """A GPU adds in the same order every time, as a CPU does."""
    if device.type != "cuda":
        yield
        return
    os.environ.setdefault(
        "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
    )  # else its matrix products may add in any order
    settings: Any = torch.utils.deterministic
    before = torch.get_deterministic_debug_mode(), settings.fill_uninitialized_memory
    try:
        torch.use_deterministic_algorithms(True)
        settings.fill_uninitialized_memory = False  # a help for finding bugs, which costs time
        yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        settings.fill_uninitialized_memory = before[1]


class _ByLength(Sampler[int]):
    """Texts of similar length together, batches by chance: the same order for the same seed and epoch.

    transformers' own sampler draws from the global generator, so a run that goes on would see other batches.
    """

    def __init__(self, lengths: list[int], batch: int, seed: int) -> None:
        self.lengths, self.batch, self.seed, self.epoch = lengths, batch, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        draw = random.Random(f"{self.seed} {self.epoch}")
        order = list(range(len(self.lengths)))
        draw.shuffle(order)
        pools = [order[i : i + POOL * self.batch] for i in range(0, len(order), POOL * self.batch)]
        ranked = [i for pool in pools for i in sorted(pool, key=lambda i: self.lengths[i])]
        batches = [ranked[i : i + self.batch] for i in range(0, len(ranked), self.batch)]
        short = (
            [batches.pop()] if len(batches[-1]) < self.batch else []
        )  # last, or all behind it would be cut anew
        draw.shuffle(batches)
        return (i for batch in [*batches, *short] for i in batch)


class _Trainer(transformers.Trainer):
    def _get_train_sampler(self, train_dataset: Any = None) -> _ByLength:
        lengths = [len(item["input_ids"]) for item in self.train_dataset.items]
        return _ByLength(lengths, self.args.per_device_train_batch_size, self.args.seed)

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(*args, **kwargs)
        if not loss.isfinite().all():
            _stop("loss", self.args, self.state.global_step + 1, self.state.max_steps)
        return loss


class _Keeper(transformers.TrainerCallback):
    """Keeps the last state that is whole and whose weights are numbers.

    The loss of a step is that of the weights before it, so they are checked before they are saved.
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


def _stop(what: str, args: Any, step: int, steps: int) -> NoReturn:
    state = latest(Path(args.output_dir))
    kept = "nothing was saved before" if state is None else f"{state} is from before"
    then = "train with a smaller rate (--rate), into another folder"
    raise AltiError(f"the {what} is not finite at step {step} of {steps}, and {kept}: {then}")


class _Watcher(transformers.TrainerCallback):
    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.watch(state.global_step, state.max_steps)


def _accuracy(found: Any) -> dict[str, float]:
    predicted, labels = np.argmax(found.predictions, -1), found.label_ids
    real = labels != IGNORED
    return {"accuracy": float((predicted == labels)[real].mean())}


def _rows(recipe: Recipe, split: str | None) -> list[Example]:
    """The rows that have a label."""
    found: list[Example] = []
    for row in read(
        recipe.data, split=split, text=recipe.text, label=recipe.label, pair=recipe.pair
    ):
        if isinstance(row, Example) and row.label is not None:
            found.append(row)
            if len(found) == recipe.first:
                break
    if not found:
        raise UsageError(
            f"{recipe.data} ({split or 'all rows'}) has no text with a label: name them with text=, label="
        )
    return found


def _model(recipe: Recipe, labels: int) -> Any:
    """The checkpoint with a head for so many labels; one for other labels is replaced."""
    place, trust, auto = recipe.checkpoint, recipe.trust_remote_code, AUTO[recipe.task]
    config = pretrained.config_of(place, trust)
    pretrained.check_head(place, config, auto)
    config.num_labels = labels
    options = {"config": config, "trust_remote_code": trust, "ignore_mismatched_sizes": True}
    reader = getattr(transformers, auto).from_pretrained
    return pretrained.read(reader, place, **options).float()


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
