"""How much vectors point the same way: near 0 if they are spread, near 1 if in a narrow cone."""

import torch
from torch import Tensor

from alti._errors import UsageError
from alti.read.block import Block


def cosine(vectors: Tensor, mask: Tensor | None = None) -> float:
    """The mean cosine of two different vectors of [n, D], in the mask; of fewer than two, nan.

    (‖Σ v̂‖² − n) / (n (n − 1)) with v̂ = v / ‖v‖. A vector that is zero has no direction and is left
    out.

    >>> alti.metrics.cosine(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    0.0
    """
    if vectors.ndim != 2:
        raise UsageError(
            f"vectors of shape {list(vectors.shape)} are not a list of vectors: give [n, D]"
        )
    return float(_cosine(vectors, mask))


def anisotropy(block: Block, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The mean cosine of two outputs y_i, and of two vectors T_ia, T_ib of one output: [B], [B].

    `lengths` are the block's ‖T_ij‖ [B, T, S], from `alti.mix.contributions.lengths`: 0 at padding.
    The second is the mean over the outputs that are a sum of two vectors or more.

    >>> inputs = tokenizer("A clever film.", return_tensors="pt")
    >>> block = alti.trace(model, inputs)[0]  # of the first layer
    >>> alti.metrics.anisotropy(block, alti.mix.contributions.lengths(block))
    """
    # 1 / length does not fit into float16
    lengths = lengths.to(torch.promote_types(lengths.dtype, torch.float32))
    real = lengths > torch.finfo(lengths.dtype).tiny ** 0.5  # the squares of shorter ones underflow
    inverse = torch.where(real, 1 / lengths, 0)  # [B, T, S]
    rows = _mean_of_pairs(_unit_sums(block, inverse), real.sum(-1))  # [B, T]
    return _cosine(block.output, block.mask), rows.nanmean(-1)


def _unit_sums(block: Block, inverse: Tensor) -> Tensor:
    """Σ_j T_ij / ‖T_ij‖ [B, T, D]. No T_ij is stored: attention is divided by the length."""
    if block.cross:
        sources = inverse[..., :-1]
        own = inverse[..., -1]  # [B, T]
    else:
        sources = inverse
        own = inverse.gather(-1, block.own_columns()[..., None])[..., 0]
    value = block.value.to(inverse)
    weight = block.weight.to(inverse)
    mixed = ((block.attn * sources[:, None]) @ value).transpose(1, 2).flatten(2)  # [B, T, H·d]
    return mixed @ weight.flatten(0, 1) * block.scale[..., None] + block.residual * own[..., None]


def _cosine(vectors: Tensor, mask: Tensor | None) -> Tensor:  # [..., n, D] -> [...]
    vectors = vectors.double()
    lengths = vectors.norm(dim=-1, keepdim=True)
    real = lengths > 0 if mask is None else (lengths > 0) & mask[..., None]
    return _mean_of_pairs(torch.where(real, vectors / lengths, 0).sum(-2), real.sum((-2, -1)))


def _mean_of_pairs(total: Tensor, n: Tensor) -> Tensor:
    """The mean product of two different of n unit vectors, from their sum [..., D]."""
    return torch.where(n > 1, (total.square().sum(-1) - n) / (n * (n - 1)), torch.nan)
