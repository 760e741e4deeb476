"""What is checked about a model with its head and tokenizer: blocks, completeness, positions."""

from typing import Any

import torch
from torch import Tensor, nn

from alti._errors import DecompositionError
from alti.methods.logits import target_logits
from alti.methods.types import Inputs, Target
from alti.read.linear_view import entering
from alti.read.modules import evaluating, network, stacks_of
from alti.read.walk import check


def check_example(base: nn.Module, tensors: dict[str, Tensor]) -> list[float]:
    """`alti.check` of a base model on example texts; a decoder reads the same."""
    if any(site.cross for stack, _ in stacks_of(base) for site in stack.sites):
        decoder = {f"decoder_{name}": tensors[name] for name in ("input_ids", "attention_mask")}
        tensors = {**tensors, **decoder}
    return check(base, tensors)


def image_of(base: Any) -> dict[str, Tensor]:
    """Noise in the shape of an image that a vision model takes."""
    config = base.config
    size = config.image_size
    if isinstance(size, int):
        size = (size, size)
    draw = torch.Generator().manual_seed(0)
    noise = torch.randn(1, config.num_channels, *size, generator=draw)
    return {"pixel_values": noise.to(base.device, base.dtype)}


def check_positions(model: nn.Module, inputs: Inputs, target: Target, why: str) -> None:
    """Raise where a head reads other final positions than the one it is taken to read.

    The gradient of its logits tells which it does; a head that is zero contradicts nothing.
    """
    output = _with_gradients(model, inputs)
    position = None if target.position is None else target.position[:, :1]
    logits = target_logits(output, Target(position=position))
    draw = torch.randn(logits.shape, generator=torch.Generator().manual_seed(0)).to(logits)
    (slope,) = torch.autograd.grad((logits * draw).sum(), output.hidden_states[-1])
    read = slope[0].abs().amax(-1).nonzero().flatten().tolist()
    expected = list(range(slope.shape[1])) if position is None else [int(position[0, 0])]
    if read and read != expected:
        family = network(model).config.model_type
        places = ", ".join(map(str, read))
        raise DecompositionError(f"{family}: the head reads position {places}, not {why}")


def _with_gradients(model: nn.Module, inputs: Inputs) -> Any:
    """The output of a model with a graph from its last hidden states, whatever is frozen."""
    inner = network(model)

    def leaf(x: Tensor) -> Tensor:
        return x.detach().requires_grad_()

    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        evaluating(model),
        entering(model, "embedding", leaf),
    ):
        tensors = {name: tensor.clone() for name, tensor in inputs.tensors.items()}
        options = {**tensors, "output_hidden_states": True, "return_dict": True}
        held = (*inner.named_parameters(), *inner.named_buffers())
        # weights made under inference_mode cannot be saved for a gradient: copies can
        weights = {name: tensor.clone() for name, tensor in held if tensor.is_inference()}
        return (
            torch.func.functional_call(inner, weights, (), options) if weights else inner(**options)
        )
