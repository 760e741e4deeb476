"""Trains a small translation model (Marian's shape) and its own tokenizer, from nothing."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer
from torch import Tensor
from torch.utils.data import Dataset

from alti._errors import LoadError, UsageError
from alti.experiments.cards import CARD, STEPS, card_of, finish, writing
from alti.experiments.data import fingerprint
from alti.experiments.formats import listed, rows_of
from alti.experiments.resuming import Run, last_state, recorded
from alti.experiments.train import SAVES, folder_for, seed_all
from alti.experiments.trainer import (
    IGNORED,
    Keeper,
    RepeatableTrainer,
    Watch,
    Watcher,
    fit,
    require_accelerate,
    without_printing,
)
from alti.model import pretrained

SPECIAL = ("<pad>", "</s>", "<unk>")  # their ids are 0, 1 and 2
FRESH = "marian"  # the name of the shape, in place of a checkpoint
AT_ONCE = 64  # texts that are translated together

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Translation:
    """What is trained on what, and how; the same recipe gives the same weights on one machine.

    That holds for one tokenizer, which is trained first and kept in the folder: its own training
    breaks ties by chance.
    """

    data: str
    source: str  # the column of the texts, and that of their translations
    target: str
    split: str | None = None
    validation: str | None = None  # a split of the data, or another file, to measure BLEU on
    first: int | None = None
    vocabulary: int = 4000  # of both languages together
    width: int = 192
    layers: int = 3  # of the encoder, and as many of the decoder
    heads: int = 4
    inner: int = 384  # width of the feed-forward layers
    dropout: float = 0.1
    smoothing: float = 0.1  # of the labels
    epochs: float = 6.0
    batch: int = 64
    rate: float = 1e-3
    warmup: float = 0.1  # share of the steps
    tokens: int = 64  # longer texts are left out
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "layers", "heads", "inner", "epochs", "batch", "rate"):
            if not getattr(self, name) > 0:
                raise UsageError(
                    f"{name} = {getattr(self, name)!r} trains nothing: give a number above 0"
                )
        if self.width % self.heads or self.width // self.heads < 2:
            raise UsageError(
                f"width = {self.width} cannot be split into {self.heads} heads: give a multiple"
            )


class _Pairs(Dataset[dict[str, Any]]):
    """Pairs of texts as tokens."""

    def __init__(self, pairs: list[Pair], tokenizer: Any, tokens: int) -> None:
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        encoded = zip(tokenizer(sources)["input_ids"], tokenizer(targets)["input_ids"], strict=True)
        items = [{"input_ids": source, "labels": target} for source, target in encoded]
        self.items = [item for item in items if max(map(len, item.values())) <= tokens]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.items[index]


def train_translation(
    recipe: Translation, out: str | Path, *, saves: int = SAVES, watch: Watch | None = None
) -> dict[str, Any]:
    """Train a translation model into the folder `out` and return its card, with BLEU.

    A stopped run is resumed, as in `alti.experiments.train.train`.
    """
    require_accelerate()
    if recipe.validation:
        sacrebleu()  # before any work is done for it
    folder = folder_for(out)
    run: Run = {
        "task": "translation",
        **asdict(recipe),
        "data_fingerprint": fingerprint(recipe.data),
    }
    if (card := recorded(folder / CARD, run)) is not None:
        return card
    pairs = _pairs(recipe)
    held_out = validation_pairs(recipe)
    tokenizer = _tokenizer(recipe, pairs, folder)
    seed_all(recipe.seed)
    model = new_model(recipe, tokenizer)
    sets = _Pairs(pairs, tokenizer, recipe.tokens)
    trainer = _trainer(recipe, model, sets, folder, saves)
    trainer.add_callback(Keeper(run))
    if watch:
        trainer.add_callback(Watcher(watch))
    with writing(folder):
        state = last_state(folder / STEPS, run)
        fit(trainer, None if state is None else str(state))
    measured = {"pairs": len(sets), "parameters": model.num_parameters()}
    card = card_of(run, **measured, **_quality(model.eval(), tokenizer, held_out))
    finish(trainer, folder, card)
    return card


def _pairs(recipe: Translation) -> list[Pair]:
    return list(
        islice(pairs_of(recipe.data, recipe.source, recipe.target, recipe.split), recipe.first)
    )


def validation_pairs(recipe: Translation) -> list[Pair]:
    """The pairs that BLEU is measured on: another file, or another split of the same data."""
    if not recipe.validation:
        return []
    if Path(recipe.validation).is_file():
        return list(pairs_of(recipe.validation, recipe.source, recipe.target, None))
    return list(pairs_of(recipe.data, recipe.source, recipe.target, recipe.validation))


def pairs_of(data: str, source: str, target: str, split: str | None) -> Iterator[Pair]:
    """The texts of two columns that are both there."""
    for row in rows_of(data, split):
        if isinstance(row, str):
            continue
        for name in (source, target):
            if name not in row:
                raise UsageError(
                    f"{data} has no column {name!r}: its columns are {listed(row)}; name those of "
                    "the texts and of their translations with --text-column and --target-column"
                )
        pair = row[source], row[target]
        if all(isinstance(text, str) and text.strip() for text in pair):
            yield pair


def _tokenizer(recipe: Translation, pairs: list[Pair], folder: Path) -> Any:
    """The tokenizer of the folder where there is one, from a run that was stopped; or a new one."""
    if (folder / "tokenizer.json").is_file() and (folder / STEPS).is_dir():
        return pretrained.tokenizer_of(str(folder), False)
    tokenizer = new_tokenizer((text for pair in pairs for text in pair), recipe.vocabulary)
    with writing(folder):
        tokenizer.save_pretrained(folder)
    return tokenizer


def new_tokenizer(texts: Iterator[str], size: int) -> Any:
    """Sub-words of both languages, found by byte-pair encoding; punctuation stands alone."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    made.decoder = decoders.Metaspace()
    trainer = BpeTrainer(vocab_size=size, special_tokens=list(SPECIAL), show_progress=False)
    made.train_from_iterator(texts, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A $B </s>", special_tokens=[("</s>", 1)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )


def new_model(recipe: Translation, tokenizer: Any) -> Any:
    """A model of Marian's shape with random weights."""
    shape: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        shape |= {
            f"{side}_layers": recipe.layers,
            f"{side}_attention_heads": recipe.heads,
            f"{side}_ffn_dim": recipe.inner,
        }
    config = transformers.MarianConfig(
        vocab_size=len(tokenizer),
        d_model=recipe.width,
        max_position_embeddings=4 * recipe.tokens,
        dropout=recipe.dropout,
        activation_function="relu",
        scale_embedding=True,
        init_std=recipe.width**-0.5,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
        forced_eos_token_id=None,
        **shape,
    )
    model = transformers.MarianMTModel(config)
    model.generation_config = transformers.GenerationConfig(
        pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, max_length=2 * recipe.tokens
    )
    return model


def _trainer(
    recipe: Translation, model: Any, sets: _Pairs, folder: Path, saves: int
) -> RepeatableTrainer:
    steps = max(1, round(recipe.epochs * -(-len(sets) // recipe.batch)))
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / STEPS),
        per_device_train_batch_size=recipe.batch,
        num_train_epochs=recipe.epochs,
        learning_rate=recipe.rate,
        adam_beta2=0.98,
        warmup_steps=round(recipe.warmup * steps),
        lr_scheduler_type="linear",
        label_smoothing_factor=recipe.smoothing,
        save_strategy="steps" if saves else "no",
        save_steps=max(1, steps // saves) if saves else steps,
        seed=recipe.seed,
        data_seed=recipe.seed,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        dataloader_pin_memory=False,
    )
    return without_printing(
        RepeatableTrainer(
            model=model, args=arguments, train_dataset=sets, data_collator=_collate(model)
        )
    )


def _collate(model: Any) -> Callable[[list[dict[str, Any]]], dict[str, Tensor]]:
    """Pads sources and translations; the decoder reads these one token late."""
    start, pad = model.config.decoder_start_token_id, model.config.pad_token_id

    def collate(items: list[dict[str, Any]]) -> dict[str, Tensor]:
        sources = [torch.tensor(item["input_ids"]) for item in items]
        targets = [torch.tensor(item["labels"]) for item in items]
        late = [torch.cat([target.new_tensor([start]), target[:-1]]) for target in targets]
        ids = _padded(sources, pad)
        return {
            "input_ids": ids,
            "attention_mask": (ids != pad).long(),
            "decoder_input_ids": _padded(late, pad),
            "labels": _padded(targets, IGNORED),
        }

    return collate


def _padded(rows: list[Tensor], fill: int) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=fill)


def _quality(model: Any, tokenizer: Any, pairs: list[Pair]) -> dict[str, Any]:
    """BLEU of what the model writes for held-out sources."""
    if not pairs:
        return {"bleu": None, "validation_pairs": 0}
    written = translated(model, tokenizer, [source for source, _ in pairs])
    score = bleu(written, [target for _, target in pairs])
    return {**score, "validation_pairs": len(pairs)}


def translated(model: Any, tokenizer: Any, texts: list[str]) -> list[str]:
    """What a model writes for each text, the likeliest token after another."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    written: dict[int, str] = {}
    for start in range(0, len(order), AT_ONCE):
        rows = order[start : start + AT_ONCE]
        given = tokenizer([texts[i] for i in rows], padding=True, return_tensors="pt")
        with torch.no_grad():
            ids = model.generate(**given.to(model.device), do_sample=False, num_beams=1)
        decoded = tokenizer.batch_decode(ids, skip_special_tokens=True)
        written |= dict(zip(rows, decoded, strict=True))
    return [written[i] for i in range(len(texts))]


def bleu(written: list[str], references: list[str]) -> dict[str, Any]:
    """BLEU as sacrebleu defines it, with its signature."""
    metric = sacrebleu().BLEU()
    score = metric.corpus_score(written, [references])
    return {"bleu": round(score.score, 2), "bleu_signature": str(metric.get_signature())}


def sacrebleu() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError as error:
        raise LoadError(
            "BLEU needs sacrebleu, which is not installed: pip install 'alti[translation]'"
        ) from error
    return metrics
