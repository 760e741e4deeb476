"""The linear view of a model: what it computes for one text, as a linear map of the vectors that enter its first layer.

Held constant are attention probabilities, 1 / std of every norm, act(x) / x of every activation, and the whole
activated gate of a gated MLP. Every output stays what the model computed, bit by bit; only gradients change: they
become exact signed effects. The proof is completeness: the target is the sum of gradient · vector over the entering
vectors and over all biases, which `completeness` measures.

Two factors make other views of it: `value` multiplies gradients on their way through the values of attention and
`response` those on their way through its probabilities. 1 and 0: the linear view; 0.5 and 0.25: the rules of AttnLRP.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from alti._errors import DecompositionError, UnsupportedModelError
from alti.families import Site
from alti.read.affine import norm
from alti.read.attention_hook import listens, overhearing, unheard
from alti.read.comparing import FLOAT32_NORM_LIMIT, LIMITS
from alti.read.modules import family_of, network, stacks_of

Point = Literal["word", "embedding"]
Function = Callable[..., Any]

ALONE = 0.05  # attention to all others below which a token cannot be taken out
NORM = re.compile(r"norm$", re.IGNORECASE)
ACTIVATION = re.compile(r"gelu|relu|silu|swish|mish|tanh|elu|activation$|laplace", re.IGNORECASE)
ACTIVATIONS: set[Function] = {
    torch.tanh, torch.relu, Tensor.tanh, Tensor.relu, functional.tanh, functional.relu, functional.gelu,
    functional.silu, functional.elu, functional.selu, functional.leaky_relu, functional.relu6, functional.mish,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Messages:
    """What attention carried from token to token at one site, its sum in the graph."""

    attn: Tensor  # [B, H, T, S]
    value: Tensor  # [B, H, S, d]
    mixed: Tensor  # [B, T, H·d]  Σ_j attn · value, what the output projection reads

    def effects(self, gradient: Tensor) -> Tensor:
        """The signed effect of j's message to i on what `gradient` [B, T, H·d] is the gradient of: [B, T, S]."""
        heads = self._heads(gradient)
        return ((heads @ self.value.transpose(-1, -2)) * self.attn).sum(1)

    def losses(self, gradient: Tensor) -> Tensor:
        """The same for j leaving the text: its attention goes to the others, whose mean takes the place of its value.

        Σ_j a_j v_j = z becomes (z − a_j v_j) / (1 − a_j), so a_j (v_j − z) / (1 − a_j) is lost.
        """
        heads = self._heads(gradient)
        apart = heads @ self.value.transpose(-1, -2) - (
            heads * self._heads(self.mixed.detach())
        ).sum(-1, keepdim=True)
        shares = self.attn / (1 - self.attn).clamp_min(ALONE)
        return (apart * shares.masked_fill(self.attn == 1, 0)).sum(
            1
        )  # nobody could take the place of an only source

    def _heads(self, x: Tensor) -> Tensor:
        """[B, T, H·d] -> [B, H, T, d]"""
        return (
            x.to(self.value)
            .reshape(len(self.attn), -1, *self.attn.shape[1:2], self.value.shape[-1])
            .transpose(1, 2)
        )


@dataclass(slots=True)
class View:
    """One forward pass seen as linear."""

    start: Tensor = field(
        default_factory=lambda: torch.empty(0)
    )  # [B, T, D]  what enters the first layer
    messages: list[Messages] = field(
        default_factory=list
    )  # in the order in which the model computed them
    output: Any = None  # the model's own, in the graph
    biases: list[Tensor] | None = None  # all of the model's; None where some are frozen


def linear_view(
    model: nn.Module, inputs: Mapping[str, Any], *, value: float = 1.0, response: float = 0.0
) -> View:
    """Run the model once; gradients of the view's output are those of the linear map.

    The model is left as it was, also after an exception.
    """
    inner = network(model)
    reader = _Reader(inner, value, response)
    exact = torch.autocast(inner.device.type, enabled=False)
    with torch.enable_grad(), exact, overhearing(inner, reader), ExitStack() as hooks:
        for handle in reader.watch():
            hooks.callback(handle.remove)
        hooks.enter_context(entering(inner, "embedding", reader.enter))
        with _StraightFunctions():
            reader.view.output = inner(**{"return_dict": True, **inputs})
    biases = _biases(inner)
    reader.view.biases = biases if all(bias.requires_grad for bias in biases) else None
    return reader.view


def completeness(
    model: nn.Module, inputs: Mapping[str, Any], target: Callable[[Any], Tensor]
) -> Tensor:
    """How much of each target [B] the linear view cannot account for, relative to the largest part: [B].

    `target` maps the model's output to one number per text.
    """
    inner = network(model)
    biases = _biases(inner)
    frozen = [bias for bias in biases if not bias.requires_grad]
    try:
        for bias in frozen:
            bias.requires_grad_(True)
        view = linear_view(model, inputs)
        vectors = [view.start, *biases]
        gaps = []
        for value in target(view.output):
            slopes = torch.autograd.grad(value, vectors, retain_graph=True, allow_unused=True)
            gaps.append(gap(value, zip(slopes, vectors, strict=True)))
        return torch.stack(gaps)
    finally:
        for bias in frozen:
            bias.requires_grad_(False)


def gap(value: Tensor, parts: Iterable[tuple[Tensor | None, Tensor]], least: float = 0.0) -> Tensor:
    """How much of a number is missing from its parts gradient · vector, relative to the largest token's or bias's.

    `least` is what is rounded on the way to that number, where that is more: the logits behind a small difference.
    """
    found = [(slope * vector).detach().sum(-1) for slope, vector in parts if slope is not None]
    value = value.detach().to(found[0])
    size = torch.stack([value.abs(), *(part.abs().amax() for part in found)]).amax()
    return (value - sum(part.sum() for part in found)).abs() / size.clamp_min(
        max(least, torch.finfo(size.dtype).tiny)
    )


def require_complete(missing: Tensor, model: nn.Module) -> None:
    """Raise where too much of a prediction is not made up of vectors and biases."""
    inner = network(model)
    limit = max(
        LIMITS.get(inner.dtype, LIMITS[torch.bfloat16]), 10 * FLOAT32_NORM_LIMIT
    )  # a rounding at every norm
    if not missing <= limit:
        raise DecompositionError(
            f"{inner.config.model_type}: the linear view leaves {float(missing):.1e} of a prediction unexplained, over "
            f"{limit:.0e}: a norm or an activation of this model is unknown to NORM and ACTIVATION in alti.linear"
        )


def _biases(model: nn.Module) -> list[Tensor]:
    return [p for name, p in model.named_parameters() if name.endswith("bias") and p.dim() == 1]


@contextmanager
def entering(model: nn.Module, at: Point, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Vectors pass through `change` where the text enters: word embeddings, or what the first layer reads."""
    inner, thread = network(model), get_ident()
    seen: list[bool] = []

    def first(x: Tensor) -> Tensor:
        if seen or get_ident() != thread:  # a layer may be shared, a model too
            return x
        seen.append(True)
        return change(x)

    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            return (first(args[0]), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": first(kwargs["hidden_states"])}

    if at == "word":
        handle = inner.get_input_embeddings().register_forward_hook(
            lambda module, args, output: first(output)
        )
    else:
        handle = stacks_of(inner)[0][1][0].register_forward_pre_hook(before, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


class _Reader:
    """Holds constant what makes a model nonlinear, and keeps what attention carried."""

    def __init__(self, model: nn.Module, value: float, response: float) -> None:
        self.model, self.view = network(model), View()
        self.value, self.response = value, response
        self.gated = family_of(model).gated
        self.attention: tuple[Tensor, Tensor] | None = None

    def watch(self) -> Iterator[RemovableHandle]:
        inside = {
            id(m)
            for _, layers in stacks_of(self.model)
            for layer in layers
            for m in layer.modules()
        }
        for module in self.model.modules():
            if next(module.children(), None) is None:
                kind = type(module).__name__
                if NORM.search(kind):
                    yield module.register_forward_hook(self._mine(_straight_norm))
                elif ACTIVATION.search(kind) and next(module.parameters(), None) is None:
                    gate = self.gated and id(module) in inside
                    yield module.register_forward_hook(
                        self._mine(_constant if gate else _straight_activation)
                    )
        for stack, layers in stacks_of(self.model):
            for layer in layers:
                for site in stack.sites:
                    yield from self._attention(site, layer)

    def _mine(self, hook: Function) -> Function:
        return lambda *event: hook(*event) if listens(self) else None

    def _attention(self, site: Site, layer: nn.Module) -> Iterator[RemovableHandle]:
        if site.probs and site.value:
            yield layer.get_submodule(site.value).register_forward_hook(
                self._mine(partial(self._value, site))
            )
            yield layer.get_submodule(site.probs).register_forward_hook(self._mine(self._probs))
        yield layer.get_submodule(site.out).register_forward_pre_hook(self._mine(self._mixed))

    def enter(self, x: Tensor) -> Tensor:
        self.view.start = x.detach().requires_grad_()
        return self.view.start

    def receive(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _faded(query, self.response), _faded(key, self.response), _faded(value, self.value)

    def hear(self, probs: Tensor, value: Tensor) -> None:
        self.attention = probs.detach(), value.detach()

    def _value(self, site: Site, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        """Values [B, S, H, d] among the parts of a projection, in families that do not use the interface."""
        (part, parts), heads = site.value_part, self.model.config.num_attention_heads
        split = output.reshape(*output.shape[:2], heads, parts, -1)
        self.attention = torch.empty(0), split[..., part, :].detach().transpose(1, 2)
        split = torch.stack(
            [_faded(x, self.value) if i == part else x for i, x in enumerate(split.unbind(-2))], -2
        )
        return split.reshape(output.shape)

    def _probs(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        if self.attention:
            self.attention = output.detach(), self.attention[1]
        return _faded(output, self.response)

    def _mixed(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if self.attention is None:
            raise UnsupportedModelError(
                f"{type(module).__name__} was called before any attention was overheard"
            )
        attn, value = self.attention
        self.attention = None
        dtype = torch.promote_types(attn.dtype, torch.float32)
        self.view.messages.append(Messages(attn.to(dtype), value.to(dtype), args[0]))


class _StraightFunctions(TorchFunctionMode):
    """Activations that a model calls as functions."""

    def __torch_function__(
        self, function: Function, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if (
            function not in ACTIVATIONS
            or not isinstance(args[0], Tensor)
            or not args[0].requires_grad
        ):
            return function(*args, **kwargs)
        if "inplace" in kwargs:
            kwargs["inplace"] = False  # what comes in is needed
        return _straight(
            args[0], function(*args, **kwargs), lambda x: function(x, *args[1:], **kwargs)
        )


def _faded(x: Tensor, factor: float) -> Tensor:
    """The same numbers; gradients are multiplied by a factor on their way back."""
    return (
        x if factor == 1 else x.detach() if factor == 0 else x.detach() + factor * (x - x.detach())
    )


def _constant(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
    return output.detach()


def _straight_activation(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
    return _straight(args[0], output, module)


def _straight(x: Tensor, y: Tensor, function: Function) -> Tensor:
    """y as x times a constant."""
    fixed = x.detach()
    with unheard(), torch._C.DisableTorchFunction():
        zero = torch.zeros(1, dtype=x.dtype, device=x.device, requires_grad=True)
        (slope,) = torch.autograd.grad(function(zero).sum(), zero)
        ratio = torch.where(fixed == 0, slope, y.detach() / fixed)
    return y.detach() + ratio * (x - fixed)


def _straight_norm(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
    """A norm with 1 / std constant."""
    x = args[0]
    with torch.no_grad(), unheard():
        dtype = torch.promote_types(x.dtype, torch.float32)
        through = norm(module, x.to(dtype), output.to(dtype))
    straight = through.linear(x.to(dtype)) * through.scale[..., None]
    bias = getattr(module, "bias", None)
    if bias is not None:
        straight = straight + bias
    return output.detach() + (straight - straight.detach()).to(output.dtype)
