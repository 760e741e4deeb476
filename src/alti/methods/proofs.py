"""What is proved about a model before it is explained, once while the model stays as it is."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

from alti._errors import DecompositionError
from alti._progress import expect, step
from alti.methods.logits import logits_of, require_finite, target_logits
from alti.methods.types import Inputs, Target
from alti.read.cuda_capture import capturing
from alti.read.events import entering, telling
from alti.read.exactness import require_same, untouched
from alti.read.linear_view import completeness, require_complete
from alti.read.modules import decodes, evaluating, family_of, network
from alti.read.quantised import require_gradients
from alti.read.walk import check

TOKENS = 16  # of a text that a model's structure is proved on
ENOUGH = 512  # of one that the linear view is proved on

_proved: WeakKeyDictionary[nn.Module, set[Hashable]] = WeakKeyDictionary()


def prove_once(model: nn.Module, what: Hashable, proof: Callable[[], object]) -> None:
    """Run a proof, unless it was given for this model as it is; not inside a CUDA graph capture."""
    if capturing():
        return
    known = _proved.setdefault(network(model), set())
    key = what, _state(model)
    if key not in known:
        proof()
        known.add(key)
        expect(1)
        step()


def _state(model: nn.Module) -> Hashable:
    """What a proof depends on: attention, dtype, the family's entry, and all hooks.

    Hooks of the whole model are left out: they see what comes in and goes out. So are those that
    transformers adds once to read hidden states, and ours that only look.
    """
    inner = network(model)
    parts = (module for module in inner.modules() if module is not inner)
    hooks = [
        number
        for part in parts
        for number, hook in (*part._forward_hooks.items(), *part._forward_pre_hooks.items())
        if hook is not require_gradients
        and not getattr(hook, "__module__", "").startswith("transformers.")
    ]
    everywhere = (*_global_forward_hooks, *_global_forward_pre_hooks)
    settings = inner.config._attn_implementation, inner.dtype, family_of(inner)
    return *settings, tuple(hooks), everywhere


def prove_structure(model: nn.Module, tensors: Mapping[str, Tensor], mask: Tensor) -> None:
    """Prove with `alti.check` that a model is what its entry in FAMILIES says.

    On the first tokens of the batch's first text.
    """
    if capturing():
        return
    bits = (min(int(mask[0].sum()), TOKENS) - 1).bit_length()  # one token proves nothing about two
    base = network(model).base_model
    text = first_text(tensors, mask, TOKENS)
    if hasattr(network(model), "base_inputs"):  # the model inside reads no tokens
        text = network(model).base_inputs(text)
    prove_once(model, ("structure", bits), lambda: check(base, text))


def prove_output(method: str, output: Any, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Prove that a method saw the output of the untouched model, for each kind of mask."""
    if output is None or capturing():
        return
    mask = tensors.get("attention_mask")
    kind = None if mask is None else (mask.dim(), mask.dtype, bool(mask.all()))

    def proof() -> None:
        with telling(network(model)):
            real = untouched(model, tensors)
        require_same(output, real, model, tensors)

    prove_once(model, ("output", method, kind), proof)


def prove_complete(
    model: nn.Module, tensors: Mapping[str, Tensor], mask: Tensor, position: Tensor | None
) -> None:
    """Prove on the batch's first text that the linear view accounts for a prediction [B, K].

    Of a long text on its start: what is proved is about the model's norms and activations.
    """
    first = None if position is None else position[:1, 0]
    text = first_text(tensors, mask, ENOUGH)
    if first is not None:
        read = text.get("decoder_attention_mask", text.get("attention_mask", mask))
        first = first.clamp_max(read.shape[1] - 1)
    prove_once(model, "complete", lambda: require_complete(missing(model, text, first), model))


def missing(model: nn.Module, tensors: Mapping[str, Tensor], position: Tensor | None) -> Tensor:
    """How much of a prediction about one text the linear view cannot account for."""
    logits = logits_of(untouched(model, tensors), position)
    require_finite(logits)
    index = logits.argmax(-1)

    def predicted(output: Any) -> Tensor:
        return logits_of(output, position).gather(1, index[:, None])[:, 0]

    return completeness(model, tensors, predicted).max()


def first_text(
    tensors: Mapping[str, Tensor], mask: Tensor, tokens: int | None = None
) -> dict[str, Tensor]:
    """A batch's first text alone, without padding: all of it, or its first tokens."""
    first: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        stack = "decoder_" if name.startswith("decoder_") else ""
        own = tensors.get(f"{stack}attention_mask", mask)
        own = own if own.shape == tensor.shape else mask
        real = own[0].nonzero()[:tokens, 0]
        first[name] = tensor[:1, real] if tensor.shape == own.shape else tensor[:1]
    return first


def check_example(base: nn.Module, tensors: dict[str, Tensor]) -> list[float]:
    """`alti.check` of a base model on example texts; a decoder reads the same."""
    if "input_ids" in tensors and decodes(base):
        decoder = {f"decoder_{name}": tensors[name] for name in ("input_ids", "attention_mask")}
        tensors = {**tensors, **decoder}
    return check(base, tensors)


def sound_of(base: Any) -> dict[str, Tensor]:
    """Noise in the shape of the features of a sound that a speech model takes."""
    draw = torch.Generator().manual_seed(0)
    size = base.config.num_mel_bins, 2 * base.config.max_source_positions
    return {"input_features": torch.randn(1, *size, generator=draw).to(base.device, base.dtype)}


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
    with torch.inference_mode(False), torch.enable_grad():  # whatever the caller is in
        position = None if target.position is None else target.position[:, :1].clone()
        which = None if target.which is None else target.which[:, :1].clone()
        logits = target_logits(output, Target(position=position, which=which))
        if which is not None and target.index is not None:  # its classes are positions
            logits = logits[..., target.index[0, :1].clone()]
        draw = torch.randn(logits.shape, generator=torch.Generator().manual_seed(0)).to(logits)
        states = getattr(output, "decoder_hidden_states", None) or output.hidden_states
        (slope,) = torch.autograd.grad((logits * draw).sum(), states[-1])
    read = slope[0].abs().amax(-1).nonzero().flatten().tolist()
    if target.weights is not None:
        expected = target.weights.nonzero().flatten().tolist()
    else:
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
        telling(inner),
    ):
        tensors = {name: tensor.clone() for name, tensor in inputs.tensors.items()}
        options = {**tensors, "output_hidden_states": True, "return_dict": True}
        held = (*inner.named_parameters(), *inner.named_buffers())
        # weights made under inference_mode cannot be saved for a gradient: copies can
        weights = {name: tensor.clone() for name, tensor in held if tensor.is_inference()}
        return (
            torch.func.functional_call(inner, weights, (), options) if weights else inner(**options)
        )
