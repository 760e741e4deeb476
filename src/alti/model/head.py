"""What a prediction is: the head of a model, the positions it reads, what its numbers mean."""

import operator
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from alti._errors import UnsupportedModelError, UsageError
from alti.family import POOLS
from alti.methods.logits import kind_of, probabilities
from alti.model.decoding import name_of
from alti.read.modules import family_of, network, stacks_of

LIKELIER = 2.3  # by so much more of a logit, ten times as likely, is worth a word
IMAGES = "ForImageClassification"
KINDS = {  # the ending of a transformers class name: what its logits are
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
    "ForMaskedLM": "masked",
    "ForQuestionAnswering": "span",
    "ForMultipleChoice": "choice",
    "ForCausalLM": "causal",
    "LMHeadModel": "causal",
    "ForConditionalGeneration": "seq2seq",
    "MTModel": "seq2seq",
}
VOCABULARIES = ("masked", "causal", "seq2seq")  # their outputs are tokens


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a model."""

    # sequence, token, masked, causal, seq2seq, span, choice; or encoder: without a head
    kind: str
    pool: str  # the position that a sequence classifier reads: first, last, eos or mean
    config: PreTrainedConfig

    @classmethod
    def of(cls, model: nn.Module) -> Self:
        """The head of a model; what `explain` does not take is refused."""
        inner = network(model)
        name, family = type(inner).__name__, inner.config.model_type
        stacks = [stack for stack, _ in stacks_of(inner)]
        read = "alti.walk, alti.trace and alti.check read it"
        if inner.main_input_name == "pixel_values" and name.endswith(IMAGES):
            return cls("image", _pool(inner), inner.config)
        names = [each.__name__ for each in type(inner).__mro__]
        kinds = [kind for each in names for ending, kind in KINDS.items() if each.endswith(ending)]
        decodes = len(stacks) > 1 and any(site.cross for stack in stacks for site in stack.sites)
        if decodes and "seq2seq" not in kinds[:1]:
            raise UnsupportedModelError(
                f"explain takes encoder–decoders that write text, and {name} ({family}) has no "
                f"head for that: load the checkpoint with AutoModelForSeq2SeqLM; {read}"
            )
        if inner.main_input_name != "input_ids" and not decodes:
            raise UnsupportedModelError(
                f"explain takes text; {name} ({family}) reads {inner.main_input_name}: {read}"
            )
        if not kinds and inner.base_model is not inner:
            raise UnsupportedModelError(
                f"explain does not take the head of {name} ({family}): load the checkpoint as one "
                f"of {', '.join('Auto…' + ending for ending in list(KINDS)[:6])} or AutoModel"
            )
        return cls(kinds[0] if kinds else "encoder", _pool(inner), inner.config)

    @property
    def hears(self) -> bool:
        """Whether a model reads sounds, not text."""
        return self.kind == "seq2seq" and hasattr(self.config, "num_mel_bins")

    @property
    def takes_batches(self) -> bool:
        """False for a classifier that reads the last token and has no padding token."""
        if self.kind == "span":  # it chooses among all tokens, padding too
            return False
        return not (
            self.kind == "sequence" and self.pool == "last" and self.config.pad_token_id is None
        )

    def position(self, ids: list[int], mask_id: int | None, asked: int | None = None) -> int | None:
        """The final position that a prediction is read from; None: the mean of all."""
        if self.kind == "sequence":
            if asked is not None:
                raise UsageError(
                    f"position = {asked} was given, but a sequence classifier reads its own: leave "
                    "it out"
                )
            return self.pooled(ids)
        last = len(ids) - 1
        if asked is not None:
            number = _integer(asked)
            if number is None or not -len(ids) <= number <= last:
                raise UsageError(
                    f"position = {asked!r} is outside the text: its {len(ids)} tokens are 0 to "
                    f"{last}"
                )
            return number % len(ids)
        if self.kind in ("masked", "token"):
            masks = [i for i, token in enumerate(ids) if token == mask_id]
            if len(masks) == 1:
                return masks[0]
            if self.kind == "token":
                raise UsageError(
                    f"a token classifier predicts at every token: say which with position=, 0 to "
                    f"{last}, or put one mask token there (the text has {len(masks)})"
                )
            raise UsageError(
                f"the text has {len(masks)} mask tokens, expected one: put it in, or give position="
            )
        return last if self.kind == "causal" else None

    def positions(self, ids: list[int], special: list[bool], asked: Any) -> tuple[int, ...]:
        """The positions of several predictions; "all": every token that is not special."""
        if self.kind == "sequence":
            raise UsageError(
                f"positions = {asked!r} was given, but a sequence classifier reads its own: leave "
                "it out"
            )
        if isinstance(asked, str) and asked == "all":
            places = tuple(i for i, added in enumerate(special) if not added)
            if not places:
                raise UsageError("positions = 'all', but the text has special tokens only")
            return places
        if isinstance(asked, str) or not isinstance(asked, Iterable):
            raise UsageError(f"positions = {asked!r} is no list of numbers: give one, or 'all'")
        chosen = tuple(self.position(ids, None, place) for place in asked)
        if not chosen:
            raise UsageError("positions is empty: give at least one, or 'all'")
        return tuple(place for place in chosen if place is not None)

    def pooled(self, ids: list[int]) -> int | None:
        """Found as the model itself finds it."""
        if self.pool == "mean":
            return None
        if self.pool == "last":
            return max(
                (i for i, token in enumerate(ids) if token != self.config.pad_token_id), default=0
            )
        if self.pool == "eos":
            return max(
                (i for i, token in enumerate(ids) if token == self.config.eos_token_id), default=0
            )
        return 0

    def index(
        self,
        tokenizer: PreTrainedTokenizerBase | None,
        target: int | str | None,
        name: str = "target",
    ) -> int | None:
        """The output that `target` names: a label or its index; a token, its text or its id."""
        if target is None:
            return None
        if self.kind == "encoder":
            raise UsageError(
                f"{name} = {target!r} was given, but this model has no head and so no classes: "
                "leave it out"
            )
        if self.kind in VOCABULARIES:
            writes = self.kind == "causal"
            return _token_index(tokenizer, self.config.vocab_size, target, name, writes=writes)
        labels = {int(index): str(label) for index, label in self.config.id2label.items()}
        number = _integer(target)
        if isinstance(target, str):
            same = [i for i, label in labels.items() if label == target]
            same = same or [i for i, label in labels.items() if label.lower() == target.lower()]
            number = same[0] if len(same) == 1 else int(target) if target.isdecimal() else None
        if number in labels:
            return number
        names = ", ".join(
            [f"{i} {label}" for i, label in labels.items()][:20] + ["…"] * (len(labels) > 20)
        )
        raise UsageError(f"{name} = {target!r} is not a label of this model: it has {names}")

    def warn_of_spaces(
        self, tokenizer: PreTrainedTokenizerBase | None, logits: Tensor, index: int
    ) -> None:
        """Warn where the token with a space in front is far likelier."""
        if self.spaced(tokenizer, logits, index) is not None:
            label = token_label(tokenizer, index)
            warnings.warn(
                f"{label!r} is far less likely here than {' ' + label!r}, another token, which "
                "begins with a space: name that one, if that is what you mean",
                stacklevel=2,
            )

    def spaced(
        self, tokenizer: PreTrainedTokenizerBase | None, logits: Tensor, index: int
    ) -> int | None:
        """The same token with a space in front, where that is far likelier.

        To most language models ' Paris' and 'Paris' differ, and users mean the likelier.
        """
        if self.kind != "causal" or tokenizer is None:
            return None
        if (label := tokenizer.decode([index])) != label.lstrip():
            return None
        other: list[int] = tokenizer.encode(f" {label}", add_special_tokens=False)
        likelier = len(other) == 1 and bool(logits[other[0]] > logits[index] + LIKELIER)
        return other[0] if likelier else None

    def prediction(
        self, tokenizer: PreTrainedTokenizerBase | None, logits: Tensor, index: int | None
    ) -> tuple[int, str, float | None]:
        """Index, label and probability of an output (None: the predicted one) for logits [C]."""
        logits = logits.double()
        index = int(logits.argmax()) if index is None else index
        if self.kind == "span":
            return index, str(index), float(logits.softmax(-1)[index])
        if self.kind in VOCABULARIES:
            return index, token_label(tokenizer, index), float(logits.softmax(-1)[index])
        label = str(self.config.id2label.get(index, index))
        if kind_of(self.config, len(logits)) == "value":
            return index, label, None
        return index, label, float(probabilities(logits, self.config)[index])


def token_label(tokenizer: PreTrainedTokenizerBase | None, index: int) -> str:
    """A token as text; a part of a character as the tokenizer writes it."""
    if tokenizer is None or (name := name_of(tokenizer, index)) is None:
        return str(index)
    label: str = tokenizer.decode([index])
    return name if not label or "\ufffd" in label else label


def _pool(inner: PreTrainedModel) -> str:
    """The position that a family's classifier reads, where its config says so too."""
    pool = family_of(inner).pool
    if not pool.startswith("config:"):
        return pool
    field = pool.removeprefix("config:")
    said = getattr(inner.config, field, None)
    pool = "first" if said in ("cls", "bos") else str(said)
    if pool not in POOLS:
        family = inner.config.model_type
        raise UnsupportedModelError(
            f"this {family} model has {field} = {said!r}: alti reads cls, bos, {', '.join(POOLS)}"
        )
    return pool


def _token_index(
    tokenizer: PreTrainedTokenizerBase | None,
    size: int,
    target: int | str,
    name: str,
    *,
    writes: bool,
) -> int:
    if not isinstance(target, str):
        number = _integer(target)
        if number is None or not 0 <= number < size:
            raise UsageError(
                f"{name} = {target!r} is not in the vocabulary, whose ids are 0 to {size - 1}"
            )
        return number
    if tokenizer is None:
        raise UsageError(f"{name} = {target!r} is a text, and there is no tokenizer: give an id")
    ids: list[int] = tokenizer.encode(target, add_special_tokens=False)
    if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
        return ids[0]
    if target in (vocabulary := tokenizer.get_vocab()):
        return int(vocabulary[target])
    if len(ids) <= 1:
        raise UsageError(
            f"{name} = {target!r} is not in the vocabulary of this model: give one of its tokens"
        )
    pieces = ", ".join(repr(token_label(tokenizer, piece)) for piece in ids)
    otherwise = ", or explain several as an answer (answer=)" if writes else ""
    raise UsageError(
        f"{name} = {target!r} is {len(ids)} tokens of this model ({pieces}): give a single one"
        f"{otherwise}"
    )


def _integer(given: Any) -> int | None:
    """An int of any make (numpy's, a tensor's), but no bool and no text."""
    try:
        return None if isinstance(given, bool | str) else operator.index(given)
    except TypeError:
        return None
