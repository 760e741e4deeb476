"""Builds a block from what was computed at one site: pure functions, no hooks."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from alti._errors import UnsupportedModelError
from alti.read.affine import Call, carried, fused_for, is_layer_norm, is_plain, projection
from alti.read.attention_call import AttentionCall, Rows, repeated
from alti.read.block import Block
from alti.read.cuda_capture import capturing
from alti.read.events import Attention, first_of
from alti.read.verdicts import Place, limit_of


@dataclass(frozen=True, slots=True)
class Recorded:
    """Everything that was computed at one site."""

    place: Place
    calls: dict[str, Call]  # by field of Site
    attention: Attention
    x: Tensor  # [B, T, D]  the residual
    total: Tensor  # [B, T, D]  the sum of residual and attention branch
    output: Any  # of the norm, or for a parallel MLP of the layer
    factor: float  # that the branch is multiplied by
    gain: Tensor | None  # [D]  the same for each dimension
    numbers: tuple[Tensor, Tensor]  # 0 and 1 in the dtype that blocks are computed in
    half: bool  # parts may stay in the dtype that the model has them in

    @property
    def norms(self) -> list[nn.Module]:
        """The norms that the block was carried through."""
        fields = ("norm", "branch_norm")
        return [self.calls[field].module for field in fields if field in self.calls]

    @property
    def end(self) -> tuple[Tensor, Tensor]:
        """What a layer with a parallel MLP returns, from its parts and as the model computed it."""
        return self.total + self.calls["parallel"].output, first_of(self.output)


def total_of(place: Place, calls: dict[str, Call], x: Tensor, read: Any) -> Tensor:
    """The sum of residual and branch [B, T, D]: what a norm or `then` read, or formed here."""
    total: Tensor = x + calls["out"].output if place.site.parallel else read
    if total.numel() != x.numel():
        raise place.wrong(
            f"ends in a tensor of {[*total.shape]}, while the residual is {[*x.shape]}"
        )
    return total.reshape_as(x)  # OPT flattens the batch


def require_calls(place: Place, calls: dict[str, Call]) -> None:
    """Raise where a module of a site was not called before the site was complete."""
    for field in ("out", "branch_norm", "residual", "parallel", "probs", "value"):
        path = getattr(place.site, field)
        if path and field not in calls:
            raise place.wrong(f"ends before its {field} {path!r} was computed")


def assemble(recorded: Recorded, mask: Tensor | None) -> tuple[Block, Tensor | None]:
    """The block of a site and, where no norm follows, what its branch computed [B, T, D]."""
    dtype = _dtype(recorded)
    branch = _branch(recorded, dtype)
    block = replace(
        branch,
        residual=recorded.x.to(dtype=dtype),
        output=recorded.total.to(dtype=dtype),
        mask=mask,
    )
    if recorded.place.site.norm:
        return carried(block, recorded.calls["norm"]), None
    return block, branch.output


def _dtype(recorded: Recorded) -> torch.dtype | None:
    """What the parts are computed in; None: as they are, for fused kernels that widen them."""
    site = recorded.place.site
    wide = torch.promote_types(recorded.x.dtype, torch.float32)
    if site.branch_norm or site.branch_scale or recorded.gain is not None:
        return wide
    kept = is_layer_norm(recorded.calls["norm"].module) if site.norm else recorded.half
    return None if kept and fused_for(recorded.x.device, wide) else wide


def _branch(recorded: Recorded, dtype: torch.dtype | None) -> Block:
    """The attention branch alone, as a block without a residual."""
    site = recorded.place.site
    probs, value, call = recorded.attention
    x = recorded.x
    zero, one = recorded.numbers
    read = None if recorded.half else one.dtype  # what attention is read in
    out = recorded.calls["out"]
    weight, bias = projection(out.module, out.input, dtype)
    _require_shapes(recorded, weight)
    _require_affine(recorded.place, out, weight, bias)
    block = Block(
        attn=probs.to(dtype=read),
        again=None if call is None else partial(_again, call, one.dtype),
        value=repeated(value, probs.shape[1]).to(dtype=read),
        weight=weight.reshape(probs.shape[1], value.shape[3], -1),
        scale=one.expand(x.shape[:2]),
        residual=zero.expand(x.shape),
        bias=bias.expand(x.shape),
        output=out.output.to(dtype=dtype).reshape(x.shape),
        cross=site.cross,
    )
    if site.branch_norm:
        block = carried(block, recorded.calls["branch_norm"])
    if recorded.gain is not None:
        block = _scaled(block, recorded.gain.to(block.output))
    return _scaled(block, recorded.factor) if site.branch_scale else block


def _again(call: AttentionCall, dtype: torch.dtype, rows: Rows) -> Tensor:
    return call.again(rows).to(dtype)


def _require_shapes(recorded: Recorded, weight: Tensor) -> None:
    place = recorded.place
    _, _, sources, width = recorded.attention.value.shape
    heads = recorded.attention.probs.shape[1]
    if weight.shape[0] != heads * width:
        raise place.wrong(f"has an out of {weight.shape[0]} inputs for {heads} heads of {width}")
    targets = recorded.x.shape[1]
    if sources != targets and not place.site.cross:
        raise UnsupportedModelError(
            f"{place.family} attends from {targets} to {sources} tokens: pass the whole text, "
            "no past_key_values"
        )


def _require_affine(place: Place, out: Call, weight: Tensor, bias: Tensor) -> None:
    """Raise where a projection that was read by calling it is no affine map, as of int8 layers."""
    if is_plain(out.module) or capturing():
        return
    wide = torch.promote_types(out.output.dtype, torch.float32)
    ours = out.input.to(wide) @ weight.to(wide) + bias.to(wide)
    real = out.output.to(wide)
    error = float((ours - real).abs().max() / real.abs().max().clamp_min(torch.finfo(wide).tiny))
    if not error <= limit_of(out.output.dtype, plain=True):
        kind = type(out.module).__name__
        raise UnsupportedModelError(
            f"{place.family} block {place.block}: {place.site.out} is a {kind}, which rounds what "
            f"it is given, by {error:.0e} here, so no sum of parts is what it computes: load the "
            "model in bfloat16, or not quantised"
        )


def _scaled(block: Block, factor: float | Tensor) -> Block:
    """The block times a factor, or one for each dimension [D].

    It may be negative, and the scale of a block must stay above 0.
    """
    return replace(
        block,
        weight=block.weight * factor,
        bias=block.bias * factor,
        output=block.output * factor,
    )


def require_whole(place: Place, call: Call, end: Tensor) -> None:
    """Raise where the second norm of a layer read only a part of the text at a time."""
    if call.output.numel() != end.numel():
        raise UnsupportedModelError(
            f"this {place.family} model computes its feed-forward layer in chunks: load it with "
            "chunk_size_feed_forward=0"
        )
