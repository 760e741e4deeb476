"""One call of a model's attention, which can be made again for some of its rows.

For a long text the probabilities of all rows, H · T² numbers, are too many to keep. The family's
own eager attention computes any of them again from the queries of these rows and all keys, with its
own scaling, mask, window, soft cap and sinks: nothing about a family is written twice. On a GPU
attention that is sdpa's and nothing more is computed by `alti.read.triton_attention`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from alti._errors import UnsupportedModelError
from alti.read.affine import fused_for

EagerAttention = Callable[..., tuple[Tensor, Tensor]]
Rows = slice | Tensor  # neighbours, or positions [B, n]

NUMBERS = {"cpu": 1 << 23, "cuda": 1 << 27}  # probabilities held at once, or those of LEAST rows
LEAST = 64


def spans(
    batch: int,
    heads: int,
    targets: int,
    sources: int,
    device: torch.device,
    *,
    least: int | None = None,
    tile: int = 1,
) -> list[slice]:
    """All rows of a block, so many at a time that their probabilities can be held.

    As many each time, in whole tiles of rows.
    """
    held = NUMBERS.get(device.type, NUMBERS["cpu"])
    step = max(least or LEAST, held // (batch * heads * sources))
    step = math.ceil(targets / math.ceil(targets / step))
    step = math.ceil(step / tile) * tile
    return [slice(start, min(start + step, targets)) for start in range(0, targets, step)]


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """What attention was called with."""

    eager: EagerAttention
    plain: EagerAttention  # what the model calls when nothing reads it
    implementation: str | None  # its name
    module: nn.Module
    query: Tensor  # [B, H, T, d]
    key: Tensor  # [B, G, S, d]  heads of a group share one
    value: Tensor  # [B, G, S, d]
    mask: Tensor | None  # [B or 1, H or 1, T, S]  visible or added; None: all, or the past alone
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def fused(self) -> Any:
        """The module that computes it on a GPU, where it can."""
        if fused_for(self.query.device, torch.float32) is None:
            return None
        module = import_module("alti.read.triton_attention")
        return module if module.fits(self) else None

    @cached_property
    def sums(self) -> Tensor:  # [B, H, T]
        """What the fused kernels need of each row."""
        sums: Tensor = self.fused.forward(self)[0]
        return sums

    @cached_property
    def places(self) -> Tensor:  # [T]
        """The positions of all rows, of which neighbours are a view."""
        return torch.arange(self.query.shape[2], device=self.query.device)

    @property
    def wide(self) -> bool:
        """Whether scores are float32 though queries and keys are not, as in sdpa."""
        half = self.query.dtype in (torch.float16, torch.bfloat16)
        return self.implementation == "sdpa" and half

    @property
    def causal(self) -> bool:
        """Whether rows see only what is before them though no mask says so, as sdpa reads it."""
        if self.mask is not None or self.query.shape[2] == 1:
            return False
        given = self.kwargs.get("is_causal")
        return bool(getattr(self.module, "is_causal", True) if given is None else given)

    def output(self) -> Tensor:  # [B, T, H, d]
        """What the model computes: in one call where that writes no probabilities.

        Not in float64, where many families take their eager softmax in float32, and sdpa does not.
        """
        if self.implementation == "sdpa" and self.query.dtype != torch.float64:
            whole = self.module, self.query, self.key, self.value, self.mask
            return self.plain(*whole, *self.args, **self.kwargs)[0]
        return torch.cat([tile.run(*tile.operands)[0] for _, tile in self.tiles()], dim=1)

    def spans(self) -> list[slice]:
        batch, heads, targets, _ = self.query.shape
        return spans(batch, heads, targets, self.key.shape[2], self.query.device)

    def tiles(self) -> Iterator[tuple[slice, "Tile"]]:
        """All rows, some at a time."""
        return ((rows, self.tile(rows)) for rows in self.spans())

    def tile(self, rows: Rows) -> "Tile":
        """Some rows, and the sources up to the last that one of them sees."""
        mask = self._mask(rows)
        seen = self._last_seen(rows, mask)
        mask = None if mask is None else mask[..., :seen]
        added, blind = meant(mask, "sdpa", self.query.dtype)  # our own mask: booleans
        key, value = self.key[:, :, :seen], self.value[:, :, :seen]
        return Tile(self, rows, _chosen(self.query, rows), key, value, added, blind)

    @torch.no_grad()
    def again(self, rows: Rows) -> Tensor:  # [B, H, n, S']
        """Probabilities of some rows, for the sources up to the last that one of them sees."""
        if self.fused is None:
            return self.tile(rows).probabilities()
        seen = self._last_seen(rows, None if self.mask is None else self._mask(rows))
        probs: Tensor = self.fused.probabilities(self, self.sums, rows, seen)
        return probs

    def _last_seen(self, rows: Rows, mask: Tensor | None) -> int:
        """How many sources there are up to the last that one of some neighbouring rows sees."""
        every = self.key.shape[2]
        if not isinstance(rows, slice):
            return every
        return rows.stop if self.causal else _seen(mask, every)

    def _mask(self, rows: Rows) -> Tensor | None:
        """The mask of some rows: [B or 1, H or 1, n, S]."""
        if self.mask is not None:
            mask = self.mask.expand(len(self.query), -1, -1, -1)
            return _chosen(mask, rows)
        if not self.causal:
            return None
        sources = torch.arange(self.key.shape[2], device=self.query.device)
        places = sources[None, rows] if isinstance(rows, slice) else rows  # [1 or B, n]
        return (sources <= places[..., None])[:, None]


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """Attention of some rows to all sources that they see."""

    call: AttentionCall
    rows: Rows
    query: Tensor  # [B, H, n, d]
    key: Tensor  # [B, G, S', d]
    value: Tensor  # [B, G, S', d]
    added: Tensor | None  # [B, H or 1, n, S']
    blind: Tensor | None  # [B, H or 1, n, 1]  rows that see nothing, and get nothing

    @property
    def dtype(self) -> torch.dtype:
        """What scores are computed in."""
        return torch.float32 if self.call.wide else self.query.dtype

    @property
    def operands(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.query, self.key, self.value

    def run(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Output [B, n, H, d] and probabilities [B, H, n, S'] of equal operands, in the graph.

        `bias` is added to the scores, behind scaling and soft caps.
        """
        call = self.call
        added = self.added
        if bias is not None:
            added = bias if added is None else added + bias
        kwargs = {**call.kwargs, **self._position_bias()}
        dtype = query.dtype
        query, key, value = (x.to(self.dtype) for x in (query, key, value))
        output, probs = call.eager(call.module, query, key, value, added, *call.args, **kwargs)
        output = output.to(dtype)
        if self.blind is not None:
            output = output.masked_fill(self.blind.transpose(1, 2), 0)
            probs = probs.masked_fill(self.blind, 0)
        return output, probs

    def probabilities(self) -> Tensor:  # [B, H, n, S']
        return self.run(self.query, self.key, self.value[..., :0])[1]

    def _position_bias(self) -> dict[str, Tensor]:
        """What a family adds for the distance of two tokens, of these rows."""
        bias = self.call.kwargs.get("position_bias")
        if bias is None:
            return {}
        bias = bias.expand(len(self.query), -1, -1, -1)
        return {"position_bias": _chosen(bias, self.rows)[..., : self.key.shape[2]]}


def repeated(value: Tensor, heads: int) -> Tensor:
    """Keys or values [B, G, S, d] for every head: [B, H, S, d]."""
    groups = heads // value.shape[1]
    return value if groups == 1 else value.repeat_interleave(groups, dim=1)


def meant(
    mask: Any, implementation: str | None, dtype: torch.dtype
) -> tuple[Tensor | None, Tensor | None]:
    """A mask as eager attention takes it, and its rows without a key [B, H, T, 1] if it has any.

    A mask of four dimensions reaches attention as the user gave it. All implementations but eager
    take booleans, True for a visible key, and output 0 for a row without any; eager attention
    would add them as numbers.
    """
    if mask is not None and not isinstance(mask, Tensor):
        raise UnsupportedModelError(
            f"a {type(mask).__name__} cannot be read as a mask: pass a tensor of two dimensions"
        )
    if mask is None or mask.dtype != torch.bool or implementation in (None, "eager"):
        return mask, None
    return added(mask, dtype), ~mask.any(-1, keepdim=True)


def added(shown: Tensor, dtype: torch.dtype) -> Tensor:
    """What eager attention adds to its scores [B, H, T, S]: 0 for visible keys, −inf for others.

    A row without any key is padding: it gets one finite number everywhere, since a nan would
    spread. A float32 can hold that number: many families take the softmax of float64 scores in it.
    """
    lowest = max(torch.finfo(dtype).min, torch.finfo(torch.float32).min)
    added = torch.zeros_like(shown, dtype=dtype).masked_fill_(~shown, -torch.inf)
    return added.masked_fill_(~shown.any(-1, keepdim=True), lowest)


def _seen(mask: Tensor | None, sources: int) -> int:
    """How many sources there are up to the last that a mask of booleans shows to any row."""
    if mask is None or mask.dtype != torch.bool:
        return sources
    shown = mask.flatten(0, 2).any(0).nonzero()
    return int(shown[-1]) + 1 if len(shown) else 1


def _chosen(x: Tensor, rows: Rows) -> Tensor:
    """Some rows of x [B, H, T, ...]: [B, H, n, ...]."""
    if isinstance(rows, slice):
        return x[:, :, rows]
    texts = torch.arange(len(rows), device=rows.device)[:, None]
    return x.transpose(1, 2)[texts, rows].transpose(1, 2)
