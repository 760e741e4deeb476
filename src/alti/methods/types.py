"""What every method takes and returns: B texts, T tokens, K predictions about each text."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Inputs:
    """A padded batch of texts as a model takes it, and what methods must know about its tokens."""

    tensors: dict[str, Tensor]  # input_ids, attention_mask, …  [B, T]
    special: Tensor  # [B, T]  True at special tokens and padding
    mask_id: int | None = None
    pad_id: int = 0
    causal: bool = False  # no token sees what comes behind it
    groups: Tensor | None = None  # [B, T]  the group of each token, -1: none; None: no groups
    split: int | None = None  # columns of an encoder, the decoder's follow; None: one stack alone

    @property
    def mask(self) -> Tensor:
        """True at real tokens: [B, T]."""
        if self.split is None:
            return self.tensors["attention_mask"].bool()
        decoder = self.tensors["decoder_attention_mask"].bool()
        encoder = self.tensors.get("attention_mask")
        if encoder is None:  # sounds have none
            encoder = decoder.new_ones(len(decoder), self.split)
        return torch.cat([encoder.bool(), decoder], 1)

    @property
    def ordered(self) -> bool:
        """Whether a prediction sees nothing behind the position that it is read from."""
        return self.causal or self.split is not None

    @property
    def ids(self) -> Tensor:
        """The token ids of the whole text [B, T]; frames of a sound have none and are 0."""
        if self.split is None:
            return self.tensors["input_ids"]
        decoder = self.tensors["decoder_input_ids"]
        encoder = self.tensors.get("input_ids")
        if encoder is None:
            encoder = decoder.new_zeros(len(decoder), self.split)
        return torch.cat([encoder, decoder], 1)

    def cloned(self) -> "Inputs":
        """The same outside torch.inference_mode, whose tensors no gradient can be taken with."""
        if not self.special.is_inference():
            return self
        tensors = {name: tensor.clone() for name, tensor in self.tensors.items()}
        groups = None if self.groups is None else self.groups.clone()
        return replace(self, tensors=tensors, special=self.special.clone(), groups=groups)

    @property
    def sources(self) -> Tensor:
        """What can be taken away: the group of each token, or each token but special ones; [B, T].

        -1 where a token belongs to none.
        """
        if self.groups is not None:
            return self.groups
        every = torch.arange(self.special.shape[1], device=self.special.device)
        return every.expand_as(self.special).masked_fill(self.special, -1)

    @property
    def source_count(self) -> int:
        """How many sources the text with the most of them has: S, a column of scores for each."""
        if self.groups is None:
            return self.special.shape[1]
        return int(self.groups.amax()) + 1

    @property
    def members(self) -> Tensor:
        """1 where a token belongs to a source: [B, T, S]."""
        sources = self.sources[..., None]
        every = torch.arange(self.source_count, device=sources.device)
        return (sources == every).float()

    def start(self, tokens: int) -> "Inputs":
        """The same texts, cut off behind some tokens."""
        tensors = {name: tensor[:, :tokens] for name, tensor in self.tensors.items()}
        groups = None if self.groups is None else self.groups[:, :tokens]
        return replace(self, tensors=tensors, special=self.special[:, :tokens], groups=groups)

    def asking(self, target: "Target") -> dict[str, Tensor]:
        """What the model is given for the logits of a target alone, where these can be chosen."""
        if target.kept is None:
            return self.tensors
        return {**self.tensors, "logits_to_keep": target.kept}

    def sources_at(self, level: float) -> Tensor:
        """One number for every source: [B, S]."""
        shape = len(self.special), self.source_count
        return torch.full(shape, level, device=self.special.device)


@dataclass(frozen=True, slots=True)
class Target:
    """What is explained: K outputs of each text, and the position that each is read from."""

    index: Tensor | None = None  # [B, K]  class or vocabulary id; None: the predicted ones
    # [B, K]  None: the mean of all real positions, and K = 1; of an encoder–decoder, the decoder's
    position: Tensor | None = None
    against: Tensor | None = None  # [B, K]  the output to explain it against; None: all others
    which: Tensor | None = None  # [B, K]  the row of logits, for a head with one for start and end
    real: Tensor | None = None  # [B, K]  False where a text has fewer than K; None: all are real
    kept: Tensor | None = None  # [n]  the only positions whose logits are asked for; None: all
    # [T]  how much each position counts where a head reads all of them; None: as much as any other
    weights: Tensor | None = None
    total: bool = False  # the predictions of a text are explained together, as one

    @property
    def count(self) -> int:
        """How many predictions there are: K."""
        given = self.index if self.position is None else self.position
        return 1 if given is None else given.shape[1]

    def tensors(self) -> dict[str, Tensor]:
        """Those that are given."""
        names = ("index", "position", "against", "which", "real")
        given = {name: getattr(self, name) for name in names}
        return {name: tensor for name, tensor in given.items() if tensor is not None}

    def has_kept(self, logits: Tensor) -> bool:
        """Whether logits [B, n, C] are those of the kept positions alone."""
        return self.kept is not None and logits.dim() == 3 and logits.shape[1] == len(self.kept)

    def changed(self, change: Callable[[Tensor], Tensor]) -> "Target":
        """The same with other tensors."""
        changed: dict[str, Any] = {name: change(x) for name, x in self.tensors().items()}
        return replace(self, **changed)

    @property
    def read_at(self) -> Tensor | None:  # [B, K]
        """The rows of logits that predictions are read from; None: there is one."""
        return self.position if self.which is None else self.which

    def cloned(self) -> "Target":
        """The same outside torch.inference_mode."""
        kept = None if self.kept is None else self.kept.clone()
        return replace(self.changed(lambda tensor: tensor.clone()), kept=kept)

    def one_by_one(self, index: Tensor) -> list["Target"]:
        """A target for each backward pass, its outputs chosen: K of [B, 1], or one for `total`."""
        chosen = replace(self, index=index)
        if self.total:
            return [chosen]
        count = index.shape[1]
        return [chosen.changed(partial(_column, k=k)) for k in range(count)]

    def joined(self, values: Tensor) -> Tensor:
        """Values [B, K] of the predictions; with `total` their sum [B, 1]."""
        if not self.total:
            return values
        real = values if self.real is None else values.where(self.real, 0)
        return real.sum(1, keepdim=True)

    def chosen(self, logits: Tensor) -> Tensor:
        """The outputs that are explained, for logits [B, K, C]: [B, K]."""
        return logits.argmax(-1) if self.index is None else self.index

    def of(self, values: Tensor, index: Tensor) -> Tensor:
        """The explained entries of values [B, K, C], minus those of their rivals: [B, K]."""
        own = values.gather(-1, index[..., None])[..., 0]
        if self.against is None:
            return own
        return own - values.gather(-1, self.against[..., None])[..., 0]

    def rows(self, inputs: Inputs) -> Tensor:
        """How much each prediction reads of each final position: [B, K, T], rows sum to 1."""
        mask = inputs.mask.float()[:, None]  # [B, 1, T]
        if self.position is None:
            read = mask if self.weights is None else mask * self.weights
            return read / read.sum(-1, keepdim=True)
        rows = mask.new_zeros(*self.position.shape, mask.shape[-1])
        return rows.scatter_(-1, self.position[..., None] + (inputs.split or 0), 1)


def _column(tensor: Tensor, *, k: int) -> Tensor:
    return tensor[:, k : k + 1]


@dataclass(frozen=True, slots=True)
class Scores:
    """What a method returns."""

    tokens: Tensor  # [B, K, T]  padding 0
    layers: Tensor | None = None  # [L, B, T, T]  a map per layer, for methods that draw them
    output: Any = None  # the model's output, where the method computed it: saves a forward pass
    vectors: Tensor | None = None  # [B, K, T, D]  what `tokens` aggregates (option `aggregate`)
    relative: bool = False  # sums of shares, not parts of the number that is explained
    extra: dict[str, Tensor] = field(default_factory=dict)  # [B, K]  about each result as a whole
