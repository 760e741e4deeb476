"""Fine-tunes a classifier of texts, or of a masked position in them, with transformers' Trainer."""

import random
import warnings
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import transformers
from torch.utils.data import Dataset

from alti._errors import UsageError
from alti.experiments.cards import CARD, STEPS, card_of, finish, writing
from alti.experiments.data import Example, fingerprint, has_splits, read
from alti.experiments.resuming import Run, last_state, recorded
from alti.experiments.trainer import (
    IGNORED,
    Keeper,
    RepeatableTrainer,
    Watch,
    Watcher,
    accuracy,
    fit,
    require_accelerate,
    without_printing,
)
from alti.model import pretrained
from alti.model.loading import find

Task = Literal["text", "mask"]
Label = int | str

AUTO = {"text": "AutoModelForSequenceClassification", "mask": "AutoModelForTokenClassification"}
SAVES = 20  # how often the state of an unfinished run is written; the last is kept


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is trained on what, and how.

    On the same machine the same recipe gives the same weights, to the bit, or a warning says that
    it does not.
    """

    checkpoint: str
    data: str
    split: str | None = "train"
    validation: str | None = "validation"  # split to measure accuracy on, if any
    text: str | None = None  # name of the column; so are the next two
    label: str | None = None
    pair: str | None = None  # the second text
    task: Task = "text"  # "mask": the head reads the mask token of each text
    mask_token: str | None = None  # how the data spells it, if not as the tokenizer
    first: int | None = None  # only this many rows
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
            if (number := getattr(self, name)) is not None and not number > 0:
                raise UsageError(f"{name} = {number!r} trains nothing: give a number above 0")


class _Texts(Dataset[dict[str, Any]]):
    """Texts as tokens, with their labels."""

    def __init__(self, rows: list[tuple[Example, int]], tokenizer: Any, recipe: Recipe) -> None:
        self.items: list[dict[str, Any]] = []
        self.unmasked = 0  # texts without exactly one mask token, which are left out
        encoded = _encoded([row for row, _ in rows], tokenizer, recipe)
        for i, (_, label) in enumerate(rows):
            item = {name: encoded[name][i] for name in encoded}
            if recipe.task == "text":
                self.items.append({**item, "labels": label})
                continue
            masked = [token == tokenizer.mask_token_id for token in item["input_ids"]]
            if sum(masked) == 1:
                labels = [label if is_mask else IGNORED for is_mask in masked]
                self.items.append({**item, "labels": labels})
            else:
                self.unmasked += 1

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.items[index]


def _encoded(rows: list[Example], tokenizer: Any, recipe: Recipe) -> Any:
    """What the tokenizer returns for the texts, or pairs of texts."""
    if not rows:
        return {}
    spelt = recipe.mask_token
    texts = [row.text.replace(spelt, tokenizer.mask_token) if spelt else row.text for row in rows]
    pairs = [row.pair for row in rows] if recipe.pair else None
    return tokenizer(texts, pairs, truncation=True, max_length=recipe.tokens)


class _Data(NamedTuple):
    """The rows to train on, those to measure accuracy on, and the label of each class."""

    training: list[Example]
    validation: list[Example]
    labels: list[Label]


class _Sets(NamedTuple):
    """The same as tokens."""

    training: _Texts
    validation: _Texts


def train(
    recipe: Recipe, out: str | Path, *, saves: int = SAVES, watch: Watch | None = None
) -> dict[str, Any]:
    """Fine-tune a checkpoint into the folder `out` and return its card; a stopped run is resumed.

    `out` holds the model, its tokenizer and card.json; `out`/steps the state of an unfinished run,
    which is written `saves` times (0: never).
    """
    find(recipe.checkpoint)
    recipe = _fitting(recipe)
    folder = folder_for(out)
    if saves < 0:
        raise UsageError(f"saves = {saves} is not a number of times: give 0 (never) or more")
    run = _run(recipe)
    if (card := recorded(folder / CARD, run)) is not None:
        return card
    tokenizer = _tokenizer(recipe)
    data = _data(recipe)
    seed_all(recipe.seed)
    model = _model(recipe, data.labels)
    sets = _sets(recipe, data, tokenizer)
    trainer = _trainer(recipe, model, tokenizer, sets, _arguments(recipe, folder, sets, saves))
    if watch:
        trainer.add_callback(Watcher(watch))
    trainer.add_callback(Keeper(run))
    with writing(folder):
        state = last_state(folder / STEPS, run)
        fit(trainer, None if state is None else str(state))
    card = _card(run, data, sets, trainer)
    finish(trainer, folder, card, tokenizer)
    return card


def _fitting(recipe: Recipe) -> Recipe:
    """The recipe; if it names the usual splits and the data has none, one for all of the data."""
    if (recipe.split, recipe.validation) != ("train", "validation") or has_splits(recipe.data):
        return recipe
    warnings.warn(
        f"{recipe.data} has no column 'split': training on all of it, and measuring no accuracy",
        stacklevel=3,
    )
    return replace(recipe, split=None, validation=None)


def folder_for(out: str | Path) -> Path:
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{out} cannot be made a folder for the model ({error.strerror}): name another"
        ) from None
    return Path(out)


def _run(recipe: Recipe) -> Run:
    """What identifies a run: its settings and its data."""
    settings = asdict(recipe)
    if not recipe.trust_remote_code:  # older cards do not have it
        del settings["trust_remote_code"]
    return {**settings, "data_fingerprint": fingerprint(recipe.data)}


def _tokenizer(recipe: Recipe) -> Any:
    tokenizer = pretrained.tokenizer_of(recipe.checkpoint, recipe.trust_remote_code)
    if recipe.task == "mask" and tokenizer.mask_token is None:
        raise UsageError(
            f"{recipe.checkpoint} has no mask token, which task = 'mask' reads: "
            "choose another checkpoint"
        )
    return tokenizer


def _data(recipe: Recipe) -> _Data:
    training = _rows(recipe, recipe.split)
    labels = sorted(_labels(training), key=lambda label: (isinstance(label, str), label))
    if len(labels) < 2:
        raise UsageError(f"{recipe.data} has the labels {labels}: training needs two or more")
    validation = _rows(recipe, recipe.validation) if recipe.validation else []
    if unknown := _labels(validation) - _labels(training):
        raise UsageError(
            f"the split {recipe.validation} has labels that {recipe.split} does not have: "
            f"{', '.join(sorted(map(str, unknown)))}"
        )
    return _Data(training, validation, labels)


def _rows(recipe: Recipe, split: str | None) -> list[Example]:
    """The rows that have a label."""
    columns = {"text": recipe.text, "label": recipe.label, "pair": recipe.pair}
    examples = read(recipe.data, split=split, **columns)
    labelled = (row for row in examples if isinstance(row, Example) and row.label is not None)
    rows = list(islice(labelled, recipe.first))
    if not rows:
        raise UsageError(
            f"{recipe.data} ({split or 'all rows'}) has no text with a label: "
            "name their columns with text= (--text-column) and label= (--label-column)"
        )
    return rows


def _labels(rows: list[Example]) -> set[Label]:
    return {row.label for row in rows if row.label is not None}


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _model(recipe: Recipe, labels: list[Label]) -> Any:
    """The checkpoint with a head for these labels; a head for other labels is replaced."""
    auto = AUTO[recipe.task]
    config = pretrained.config_of(recipe.checkpoint, recipe.trust_remote_code)
    pretrained.check_head(recipe.checkpoint, config, auto)
    config.num_labels = len(labels)
    model = pretrained.read(
        getattr(transformers, auto).from_pretrained,
        recipe.checkpoint,
        config=config,
        trust_remote_code=recipe.trust_remote_code,
        ignore_mismatched_sizes=True,
    ).float()
    model.config.id2label = {i: str(label) for i, label in enumerate(labels)}
    model.config.label2id = {str(label): i for i, label in enumerate(labels)}
    return model


def _sets(recipe: Recipe, data: _Data, tokenizer: Any) -> _Sets:
    training = _texts(recipe, recipe.split, data.training, data.labels, tokenizer)
    validation = _texts(recipe, recipe.validation, data.validation, data.labels, tokenizer)
    return _Sets(training, validation)


def _texts(
    recipe: Recipe, split: str | None, rows: list[Example], labels: list[Label], tokenizer: Any
) -> _Texts:
    numbers: dict[Label | None, int] = {label: i for i, label in enumerate(labels)}
    texts = _Texts([(row, numbers[row.label]) for row in rows], tokenizer, recipe)
    if rows and not len(texts):
        raise UsageError(
            f"no text of {recipe.data} ({split or 'all rows'}) has exactly one "
            f"{tokenizer.mask_token}, which task = 'mask' reads: "
            "say how the data spells it with mask_token= (--mask-token)"
        )
    return texts


def _trainer(
    recipe: Recipe,
    model: Any,
    tokenizer: Any,
    sets: _Sets,
    arguments: transformers.TrainingArguments,
) -> RepeatableTrainer:
    trainer = RepeatableTrainer(
        model=model,
        args=arguments,
        train_dataset=sets.training,
        eval_dataset=sets.validation if len(sets.validation) else None,
        data_collator=_collator(recipe, tokenizer),
        compute_metrics=accuracy,
    )
    return without_printing(trainer)


def _arguments(
    recipe: Recipe, folder: Path, sets: _Sets, saves: int
) -> transformers.TrainingArguments:
    require_accelerate()
    batches = -(-len(sets.training) // recipe.batch)  # rounded up
    steps = max(1, round(recipe.epochs * batches))
    return transformers.TrainingArguments(
        output_dir=str(folder / STEPS),
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


def _collator(recipe: Recipe, tokenizer: Any) -> Any:
    """What pads the texts of a batch, and for task = 'mask' their labels too."""
    if recipe.task == "text":
        return transformers.DataCollatorWithPadding(tokenizer)
    return transformers.DataCollatorForTokenClassification(tokenizer, label_pad_token_id=IGNORED)


def _card(run: Run, data: _Data, sets: _Sets, trainer: RepeatableTrainer) -> dict[str, Any]:
    return card_of(
        run,
        texts=len(sets.training),
        texts_without_one_mask=sets.training.unmasked,
        labels=[str(label) for label in data.labels],
        accuracy=trainer.evaluate()["eval_accuracy"] if data.validation else None,
        validation_texts=len(sets.validation),
    )
