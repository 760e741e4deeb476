"""The paper's equations on the neutral `Block`: pure functions, no family, no model."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from alti._errors import UsageError
from alti.mix.heads import apart, by_head
from alti.mix.kernels import pick
from alti.mix.kernels.reference import parts
from alti.mix.kernels.shared import divided, unpadded
from alti.read.block import Block

__all__ = ["attention", "contributions", "lengths", "norms", "parts", "roll", "rollout"]


def contributions(block: Block, *, p: int = 1, kernel: str = "auto", heads: bool = False) -> Tensor:
    """How much each token contributes to each token's vector in one block (ALTI).

    c_ij = max(0, ‖y_i‖ − ‖y_i − T_ij‖) in the ℓp norm, each row divided by its sum: [B, T, S].
    Cross-attention has one more column, the residual. A row without a positive entry is the
    identity's; padded rows and columns are 0.

    With `heads`, of the vector T^h_ij that each head alone brings (`mix/heads.py`): [B, H, T, S].
    The row of a token is divided by its sum over all heads and the residual, which is no head's, so
    what is missing to 1 is the residual's share. Vectors of heads add up to T_ij; distances do not,
    so these maps do not add up to that of the block.

    >>> inputs = tokenizer("A clever film.", return_tensors="pt")
    >>> block = alti.trace(model, inputs)[0]  # of the first layer
    >>> alti.contributions(block)[0].sum(-1)  # every row is 1
    """
    if heads:
        # the fast kernel of a GPU is made for heads that are narrower than the model
        wide = "blocked" if kernel == "auto" and block.attn.is_cuda else kernel
        return apart(block, contributions(by_head(block), p=p, kernel=wide))
    if p not in (1, 2):
        raise UsageError(
            f"p = {p!r} is not a norm of ALTI: give 1 (the paper's) or 2 (its ablation)"
        )
    chosen = _kernel(kernel, block, f"l{p}")
    if hasattr(chosen, "contributions"):
        return cast(Tensor, chosen.contributions(block))
    return divided(block, chosen.proximity(block, p).clamp_min_(0))


@dataclass(frozen=True, slots=True)
class Contributions:
    """`contributions` with its options."""

    p: int = 1
    kernel: str = "auto"

    @property
    def half(self) -> bool:
        """Whether the kernel of a GPU reads parts of blocks in half precision as they are."""
        return self.p == 1 and self.kernel in ("auto", "triton")

    def __call__(self, block: Block) -> Tensor:
        return contributions(block, p=self.p, kernel=self.kernel)

    def by_rows(self, block: Block, spans: Sequence[slice]) -> Iterator[Tensor]:
        """Those of neighbouring rows of a block that computes attention again, span by span."""
        chosen = _kernel(self.kernel, block, "l1") if self.p == 1 else None
        if chosen is not None and hasattr(chosen, "by_rows"):
            yield from chosen.by_rows(block, spans)
        else:
            yield from (self(block.span(span)) for span in spans)


def norms(block: Block, *, kernel: str = "auto") -> Tensor:
    """The length of each token's share: ‖T_ij‖₂, each row divided by its sum: [B, T, S].

    Kobayashi et al. (2021).

    >>> inputs = tokenizer("A clever film.", return_tensors="pt")
    >>> block = alti.trace(model, inputs)[0]  # of the first layer
    >>> alti.norms(block).shape
    """
    return divided(block, _kernel(kernel, block, "lengths").lengths(block))


def lengths(block: Block, *, kernel: str = "auto") -> Tensor:
    """‖T_ij‖₂ as it is, padded rows and columns 0: [B, T, S]."""
    return unpadded(block, _kernel(kernel, block, "lengths").lengths(block))


def attention(block: Block) -> Tensor:
    """Attention probabilities, their mean over the heads: [B, T, S]; padded rows are 0."""
    a = block.attn.mean(1)
    return unpadded(block, a / a.sum(-1, keepdim=True))  # half precision does not sum to 1


def rollout(maps: Iterable[Tensor], *, rescale: bool = False) -> Tensor:
    """Contributions multiplied through the layers, first layer first: R = C^L · … · C^1, [B, T, T].

    With `rescale` the running product is divided by its maximum at each layer: for maps whose rows
    do not sum to 1.

    >>> inputs = tokenizer("A clever film.", return_tensors="pt")
    >>> maps = [alti.contributions(block) for block in alti.trace(model, inputs)]
    >>> alti.rollout(maps)[0, 0]  # what the first token consists of in the end
    """
    product: Tensor | None = None
    for contribution in maps:
        product = contribution if product is None else contribution @ product
        if rescale:
            product = _rescaled(product)
    if product is None:
        raise UsageError("rollout needs the map of at least one layer, got none")
    return product


def roll(row: Tensor, maps: Sequence[Tensor], *, rescale: bool = False) -> Tensor:
    """One row (or a mean of rows) of the rollout alone: row · C^L · … · C^1, [B, T]."""
    row = row[:, None]
    for contribution in reversed(maps):
        row = row @ contribution
        if rescale:
            row = _rescaled(row)
    return row[:, 0]


def _rescaled(product: Tensor) -> Tensor:
    return product / product.amax((-2, -1), keepdim=True).clamp_min(torch.finfo(product.dtype).tiny)


def _kernel(name: str, block: Block, task: str) -> Any:
    return pick(name, task, block.scale.device, block.scale.dtype)
