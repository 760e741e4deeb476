"""The linear view of a model: for one text, a linear map of the vectors that enter its first layer.

Held constant are attention probabilities, 1 / std of every norm, act(x) / x of every activation,
and the whole activated gate of a gated MLP. Every output stays what the model computed, bit by
bit; only gradients change: they become exact signed effects. The proof is completeness: the target
is the sum of gradient · vector over the entering vectors and over all biases, which `completeness`
measures.

Two factors define other views: `value` multiplies gradients that pass through the values of
attention, and `response` those that pass through its probabilities. 1 and 0 give the linear view,
0.5 and 0.25 the rules of AttnLRP.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from alti._errors import DecompositionError, UnsupportedModelError
from alti._progress import expect, step
from alti.family import Site
from alti.read.affine import Call, norm
from alti.read.attention_hook import paused
from alti.read.events import Reader, entering, split_values
from alti.read.messages import Messages, Receiver
from alti.read.modules import family_of, is_gated, network
from alti.read.output_bias import output_bias
from alti.read.verdicts import FLOAT32_NORM_LIMIT, LIMITS

Function = Callable[..., Any]

NORM = re.compile(r"norm(1p)?$", re.IGNORECASE)
ACTIVATION = re.compile(r"gelu|relu|silu|swish|mish|tanh|elu|activation$|laplace", re.IGNORECASE)
ACTIVATIONS: set[Function] = {
    torch.tanh, torch.relu, Tensor.tanh, Tensor.relu, functional.tanh, functional.relu,
    functional.gelu, functional.silu, functional.elu, functional.selu, functional.leaky_relu,
    functional.relu6, functional.mish,
}  # fmt: skip
BIASED: dict[Function, int] = {functional.linear: 2, torch.addmm: 0}  # where their bias stands
GATES: set[Function] = {torch.erf, Tensor.erf}  # of a gelu that a model spells out: x (1 + erf) / 2


# gradients at the vectors that enter each stack, and at biases and constants
Effects = tuple[Sequence[Tensor], Sequence[Tensor | None]]


@dataclass(slots=True)
class View:
    """One forward pass seen as linear."""

    start: Tensor = field(default_factory=lambda: torch.empty(0))  # [B, T, D]  first layer's input
    prefix: Tensor | None = None  # [B, T', D]  the same of a decoder beside an encoder
    constants: list[Tensor] = field(default_factory=list)  # what a head adds, that is no parameter
    messages: list[Messages] = field(default_factory=list)  # in the order of computation
    output: Any = None  # the model's own, in the graph
    biases: list[Tensor] | None = None  # all of the model's; None: some are frozen or elsewhere
    given: list[Tensor] = field(default_factory=list)  # those that functions were given

    @property
    def starts(self) -> list[Tensor]:
        """The vectors that enter each stack."""
        return [self.start] if self.prefix is None else [self.start, self.prefix]

    @property
    def others(self) -> list[Tensor]:
        """Biases, and constants that are added like them."""
        return [*(self.biases or []), *self.constants]

    def effects(self, values: Tensor, receiver: Receiver | None = None) -> Iterator[Effects]:
        """Gradients of the values [B, K] of each prediction, in their order.

        Either all messages are passed to `receiver`, with the gradient at what they were added up
        to, or the gradients at biases and constants are computed too.
        """
        starts = len(self.starts)
        behind = self.others if receiver is None else [sent.mixed for sent in self.messages]
        vectors = [*self.starts, *behind]
        sites = len(self.messages)
        expect(values.shape[1] * (sites if receiver is None else 2 * sites))
        for k, value in enumerate(values.unbind(1)):
            slopes = _gradients(value, vectors, keep=k < values.shape[1] - 1)
            if receiver is None:
                yield slopes[:starts], slopes[starts:]
                continue
            pairs = zip(self.messages, slopes[starts:], strict=True)
            for layer, (messages, slope) in enumerate(pairs):
                rows = slice(0, messages.attn.shape[2])
                receiver.messages(layer, k, messages, slope, rows)
                step()
            yield slopes[:starts], ()


def _gradients(value: Tensor, vectors: Sequence[Tensor], *, keep: bool) -> tuple[Any, ...]:
    return torch.autograd.grad(value.sum(), vectors, retain_graph=keep, allow_unused=True)


def linear_view(
    model: nn.Module, inputs: Mapping[str, Any], *, value: float = 1.0, response: float = 0.0
) -> View:
    """Run the model once; gradients of the view's output are those of the linear map.

    The model is left as it was, also after an exception.

    >>> inputs = tokenizer("A clever film.", return_tensors="pt")
    >>> view = alti.linear_view(model, inputs)
    >>> torch.autograd.grad(view.output.logits[0, 1], view.start)[0]  # of class 1: [1, T, D]
    """
    inner = network(model)
    require_linear(inner)
    reader = Straightened(inner, value, response)
    view = reader.view
    expect(reader.sites_in_all)
    with (
        torch.enable_grad(),
        reader.listening(),
        entering(inner, "embedding", reader.enter),
        StraightFunctions(view.given),
        output_bias(inner) as view.constants,
    ):
        view.output = inner(**{"return_dict": True, **inputs})
    view.biases = trained_biases(inner)
    return view


def require_linear(model: PreTrainedModel) -> None:
    if why := family_of(model).nonlinear:
        raise UnsupportedModelError(
            f"{model.config.model_type} has no linear view, which linear, absence, alti_logit, "
            f"consensus and surrogate need, because {why}: for a class use dimming, gradient, "
            "occlusion, leave_one_out or contextcite, for how tokens mix alti"
        )


def completeness(
    model: nn.Module, inputs: Mapping[str, Any], target: Callable[[Any], Tensor]
) -> Tensor:
    """How much of each target the linear view leaves out, relative to its largest part: [B].

    `target` maps the model's output to one number per text.
    """
    biases = _biases(network(model))
    with _trainable(biases):
        view = linear_view(model, inputs)
        own = set(map(id, biases))
        brought = [bias for bias in view.given if id(bias) not in own]  # by accelerate, for a call
        vectors = [*view.starts, *biases, *view.constants, *brought]
        gaps = []
        for value in target(view.output):
            expect(len(view.messages))
            slopes = torch.autograd.grad(value, vectors, retain_graph=True, allow_unused=True)
            gaps.append(gap(value, zip(slopes, vectors, strict=True)))
        return torch.stack(gaps)


@contextmanager
def _trainable(parameters: list[Tensor]) -> Iterator[None]:
    """All of them have gradients in here; afterwards frozen ones are frozen again."""
    frozen = [parameter for parameter in parameters if not parameter.requires_grad]
    try:
        for parameter in frozen:
            parameter.requires_grad_(True)
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def gap(value: Tensor, parts: Iterable[tuple[Tensor | None, Tensor]], least: float = 0.0) -> Tensor:
    """How much of a number is missing from its parts gradient · vector.

    It is relative to the largest part of a token or bias, or to `least` if that is more: what is
    rounded on the way to the number, as the logits behind a small difference are.
    """
    shares = [(slope * vector).detach().sum(-1) for slope, vector in parts if slope is not None]
    value = value.detach().to(shares[0])
    size = torch.stack([value.abs(), *(share.abs().amax() for share in shares)]).amax()
    missing = (value - sum(share.sum() for share in shares)).abs()
    return missing / size.clamp_min(max(least, torch.finfo(size.dtype).tiny))


def require_complete(missing: Tensor, model: nn.Module) -> None:
    """Raise where too much of a prediction is not made up of vectors and biases."""
    inner = network(model)
    rounding = 10 * FLOAT32_NORM_LIMIT  # at every norm
    limit = max(LIMITS.get(inner.dtype, LIMITS[torch.bfloat16]), rounding)
    if not missing <= limit:
        rounded = ", or its dtype rounds too much here: load it with dtype='float64'"
        raise DecompositionError(
            f"{inner.config.model_type}: the linear view leaves {float(missing):.1e} of a "
            f"prediction unexplained, over {limit:.0e}: NORM and ACTIVATION in "
            "alti.read.linear_view do not know a norm or an activation of this model"
            + (rounded if inner.dtype != torch.float64 else "")
        )


def trained_biases(model: nn.Module) -> list[Tensor] | None:
    biases = _biases(model)
    return biases if all(bias.requires_grad and not bias.is_meta for bias in biases) else None


def _biases(model: nn.Module) -> list[Tensor]:
    return [p for name, p in model.named_parameters() if name.endswith("bias") and p.dim() == 1]


class Straightened(Reader):
    """Holds constant what makes a model nonlinear, and keeps what attention carried."""

    def __init__(
        self, model: PreTrainedModel, value: float, response: float, *, by_rows: bool = False
    ) -> None:
        super().__init__(model, by_rows=by_rows)
        self.view = View()
        self.value = value
        self.response = response

    def hooks(self) -> Iterator[RemovableHandle]:
        gates = self._gates()
        for module in self.model.modules():
            straight = _straightening(module, self.view.given)
            if straight is _straight_activation and id(module) in gates:
                yield self.without_gradient(module)
            elif straight is not None:
                yield self.anywhere(module, partial(_in_a_graph, straight))
        for stack, layers in self.stacks:
            for layer in layers:
                yield self.at_start(layer, lambda x: None)
                yield from self._router_hooks(layer)
                for site in stack.sites:
                    yield from self._site_hooks(site, layer)

    def _router_hooks(self, layer: nn.Module) -> Iterator[RemovableHandle]:
        """How experts are weighed is held constant; some layers of a family may have none."""
        modules = dict(layer.named_modules())
        for path in family_of(self.model).routers:
            if path in modules:
                yield self.anywhere(modules[path], _constants)

    def _gates(self) -> set[int]:
        """Activations inside the layers of a family whose MLP is gated."""
        if not is_gated(self.model):
            return set()
        layers = (layer for _, layers in self.stacks for layer in layers)
        return {id(module) for layer in layers for module in layer.modules()}

    def _site_hooks(self, site: Site, layer: nn.Module) -> Iterator[RemovableHandle]:
        if site.probs and site.value:
            yield self.record(layer, site, "value")
            yield self.after(layer, site.value, partial(self._fade_values, site))
            yield self.record(layer, site, "probs")
            yield self.after(layer, site.probs, lambda call: _faded(call.output, self.response))
        if not self.by_rows:
            yield self.after(layer, site.out, partial(self._projected, site))

    def enter(self, x: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        if self.view.start.numel():
            self.view.prefix = leaf
        else:
            self.view.start = leaf
        return leaf

    def before_attention(
        self, query: Tensor, key: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        return _faded(query, self.response), _faded(key, self.response), _faded(value, self.value)

    def before_mixing(self, probs: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return _faded(probs, self.response), _faded(value, self.value)

    def _fade_values(self, site: Site, call: Call) -> Tensor:
        """The same for values among the parts of a projection."""
        split = split_values(site, call.output, self.model.config.num_attention_heads)
        parts = list(split.unbind(-2))
        part = site.value_part[0]
        parts[part] = _faded(parts[part], self.value)
        return torch.stack(parts, -2).reshape(call.output.shape)

    def _projected(self, site: Site, call: Call) -> None:
        """The output projection has read what attention mixed: the site is complete."""
        attention = self.claim_attention(site)
        if attention is None:
            raise UnsupportedModelError(
                f"{type(call.module).__name__} was called before any attention was captured"
            )
        probs, value, _ = attention
        dtype = torch.promote_types(probs.dtype, torch.float32)
        messages = Messages(probs.detach().to(dtype), value.detach().to(dtype), call.input)
        self.view.messages.append(messages)
        if call.input.requires_grad:  # then gradients go through
            call.input.register_hook(lambda _: step())  # type: ignore[no-untyped-call]
        self.calls.clear()
        self.count += 1


def _straightening(module: nn.Module, given: list[Tensor]) -> Callable[[Call], Tensor] | None:
    """What makes a module linear; None where it is so already. Biases found on the way: `given`."""
    if next(module.children(), None) is not None:
        return None
    kind = type(module).__name__
    if NORM.search(kind):
        return partial(_straight_norm, given)
    if ACTIVATION.search(kind) and next(module.parameters(), None) is None:
        return _straight_activation
    return None


def _in_a_graph(straight: Callable[[Call], Tensor], call: Call) -> Tensor | None:
    """A pass without a graph has no gradients to change."""
    return straight(call) if torch.is_grad_enabled() else None


class StraightFunctions(TorchFunctionMode):
    """Activations that a model calls as functions.

    Biases that projections are given go to `given`: accelerate takes those that it brings away
    again, and then no parameter of the model is what gradients reach.
    """

    def __init__(self, given: list[Tensor] | None = None) -> None:
        super().__init__()
        self.given = given

    def __torch_function__(
        self, function: Function, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.given is not None and function in BIASED:
            bias = kwargs.get("bias", args[BIASED[function]] if len(args) > 2 else None)
            if isinstance(bias, nn.Parameter) and bias.requires_grad:
                self.given.append(bias)
        if function in GATES:
            return function(*args, **kwargs).detach()
        known = function in ACTIVATIONS and isinstance(args[0], Tensor)
        if not known or not args[0].requires_grad:
            return function(*args, **kwargs)
        kwargs = dict(kwargs)
        if "inplace" in kwargs:
            kwargs["inplace"] = False  # the input is needed
        y = function(*args, **kwargs)
        return _straight(args[0], y, lambda x: function(x, *args[1:], **kwargs))


def _faded(x: Tensor, factor: float) -> Tensor:
    """The same numbers; gradients are multiplied by a factor on their way back."""
    if factor == 1:
        return x
    if factor == 0:
        return x.detach()
    return x.detach() + factor * (x - x.detach())


def _constants(call: Call) -> Any:
    """What a module returned, one tensor or several, as constants."""
    output: Any = call.output
    if isinstance(output, Tensor):
        return output.detach()
    return tuple(x.detach() if isinstance(x, Tensor) else x for x in output)


def _straight_activation(call: Call) -> Tensor:
    return _straight(call.input, call.output, call.module)


def _straight(x: Tensor, y: Tensor, function: Function) -> Tensor:
    """y as x times a constant."""
    fixed = x.detach()
    with paused(), torch._C.DisableTorchFunction():
        zero = torch.zeros(1, dtype=x.dtype, device=x.device, requires_grad=True)
        (slope,) = torch.autograd.grad(function(zero).sum(), zero)
        ratio = torch.where(fixed == 0, slope, y.detach() / fixed)
    return y.detach() + ratio * (x - fixed)


def _straight_norm(given: list[Tensor], call: Call) -> Tensor:
    """A norm with 1 / std constant."""
    x = call.input
    output = call.output
    with torch.no_grad(), paused(), torch._C.DisableTorchFunction():
        dtype = torch.promote_types(x.dtype, torch.float32)
        through = norm(call.module, x.to(dtype), output.to(dtype))
    straight = through.linear(x.to(dtype)) * through.scale[..., None]
    bias = getattr(call.module, "bias", None)
    if bias is not None and bias.is_meta:  # a copy of what accelerate has taken away
        bias = through.shift.requires_grad_(bias.requires_grad)
        given += [bias] if bias.requires_grad else []
    if bias is not None:
        straight = straight + bias
    return output.detach() + (straight - straight.detach()).to(output.dtype)
