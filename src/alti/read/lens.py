"""What a model would have said after each layer: its own final norm and head on what it held then.

Nothing behind the last layer is written a second time: the model runs once on the text, and its
layers' outputs are kept at the positions that are asked for; then it runs on tokens of no meaning,
one in each text, and what the last layer gives is replaced by what was kept. A final norm and the
head of a language model look at one position at a time, so the rest of the model does not matter.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from alti._errors import DecompositionError
from alti.read.events import first_of
from alti.read.exactness import OUTPUT_LIMIT
from alti.read.modules import call, device_of, evaluating, network, stacks_of
from alti.read.verdicts import LIMITS, relative

AT_ONCE = 64  # vectors that the head reads in one pass

Seen = Callable[[int, Tensor], Tensor | None]  # a layer's number and output -> another one


def layer_logits(
    model: nn.Module, inputs: Mapping[str, Any], positions: Tensor
) -> Iterator[Tensor]:
    """The logits [B, K, C] after each layer, first layer first, at `positions` [B, K].

    Those of the last layer are compared with the model's own: DecompositionError if they differ.
    """
    inner = network(model)
    exact = torch.autocast(device_of(inner).type, enabled=False)
    with torch.no_grad(), exact, evaluating(inner):
        held, own = _held(inner, inputs, positions)
        for number, vectors in enumerate(held):
            logits = _said(inner, vectors, inputs, len(held))
            if number == len(held) - 1:
                _require_own(logits, own, inner)
            yield logits


def _held(
    model: PreTrainedModel, inputs: Mapping[str, Any], positions: Tensor
) -> tuple[list[Tensor], Tensor]:
    """What each layer gave at some positions, [B, K, D] each, and the model's own logits there."""
    texts = torch.arange(len(positions), device=positions.device)[:, None]
    held: list[Tensor] = []

    def keep(number: int, output: Tensor) -> None:
        held.append(output[texts.to(output.device), positions.to(output.device)])

    with _seeing(model, keep):
        logits = call(model, inputs).logits
    kept = inputs.get("logits_to_keep")
    columns = positions if kept is None else torch.searchsorted(kept, positions)
    return held, logits[texts.to(logits.device), columns.to(logits.device)]


def _said(
    model: PreTrainedModel, vectors: Tensor, inputs: Mapping[str, Any], layers: int
) -> Tensor:
    """The logits [B, K, C] that the end of a model makes of vectors [B, K, D]."""
    batch, count, _ = vectors.shape
    every = vectors.flatten(0, 1)
    ids = inputs["input_ids"][:1, :1]  # any token will do
    parts = []
    for start in range(0, len(every), AT_ONCE):
        part = every[start : start + AT_ONCE][:, None]  # [n, 1, D]

        def replaced(number: int, output: Tensor, part: Tensor = part) -> Tensor | None:
            return part.to(output) if number == layers - 1 else None

        given = ids.expand(len(part), 1)
        with _seeing(model, replaced):
            whole = {"input_ids": given, "attention_mask": torch.ones_like(given)}
            parts.append(call(model, whole).logits[:, 0])
    return torch.cat(parts).view(batch, count, -1)


@contextmanager
def _seeing(model: PreTrainedModel, see: Seen) -> Iterator[None]:
    """Shows every layer's output as it is computed; what `see` returns is taken instead."""
    thread = get_ident()
    count = 0

    def hook(module: nn.Module, args: Any, output: Any) -> Any:
        nonlocal count
        if get_ident() != thread:  # the model may be used elsewhere
            return output
        number, count = count, count + 1
        other = see(number, first_of(output))
        if other is None:
            return output
        return (other, *output[1:]) if isinstance(output, tuple | list) else other

    layers = {id(layer): layer for _, layers in stacks_of(model) for layer in layers}
    with ExitStack() as registered:
        for layer in layers.values():
            registered.callback(layer.register_forward_hook(hook).remove)
        yield


def _require_own(logits: Tensor, own: Tensor, model: PreTrainedModel) -> None:
    """What was said after the last layer has to be what the model says."""
    wide = torch.promote_types(own.dtype, torch.float32)
    logits, own = logits.to(wide), own.to(wide)
    if not bool(own.isfinite().all()):
        raise DecompositionError(
            f"{model.config.model_type}: the model itself gives numbers that are not finite for "
            "this input, so nothing can be said after its layers: try another dtype, and padding "
            "on the right"
        )
    size = own.abs().amax(-1).clamp_min(1)
    limit = max(OUTPUT_LIMIT, LIMITS.get(model.dtype, LIMITS[torch.bfloat16]))
    error = float(relative(logits, own, None, size).max())
    if not error <= limit:
        raise DecompositionError(
            f"{model.config.model_type}: behind its last layer the model does not look at one "
            f"position alone, so what it would have said after a layer cannot be computed (the "
            f"last one's is wrong by {error:.1e} of its size): leave lens=True out"
        )
