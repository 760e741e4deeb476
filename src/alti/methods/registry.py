"""What every attribution method takes and returns, and the table of their names."""

import inspect
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints, overload

import torch
from torch import Tensor, nn

from alti._errors import UsageError
from alti.methods.proofs import prove_output, prove_structure


@dataclass(frozen=True, slots=True)
class Inputs:
    """A padded batch of texts as a model takes it, and what methods must know about its tokens."""

    tensors: dict[str, Tensor]  # input_ids, attention_mask, …  [B, T]
    special: Tensor  # [B, T]  True at special tokens and padding
    mask_id: int | None = None
    pad_id: int = 0

    @property
    def mask(self) -> Tensor:
        """True at real tokens: [B, T]."""
        return self.tensors["attention_mask"].bool()

    def cloned(self) -> "Inputs":
        """The same outside torch.inference_mode, whose tensors no gradient can be taken with."""
        if not self.special.is_inference():
            return self
        return replace(
            self,
            tensors={k: t.clone() for k, t in self.tensors.items()},
            special=self.special.clone(),
        )


@dataclass(frozen=True, slots=True)
class Target:
    """What is explained: which output, read at which position."""

    index: Tensor | None = None  # [B]  class or vocabulary id; None: the predicted one
    position: Tensor | None = None  # [B]  None: the mean of all real positions
    against: Tensor | None = None  # [B]  the output that it is explained against; None: all others

    def cloned(self) -> "Target":
        """The same outside torch.inference_mode."""
        return Target(
            *(None if t is None else t.clone() for t in (self.index, self.position, self.against))
        )

    def chosen(self, logits: Tensor) -> Tensor:
        """The output that is explained, for logits [B, C]: [B]."""
        return logits.argmax(-1) if self.index is None else self.index

    def of(self, values: Tensor, index: Tensor) -> Tensor:
        """The entry of values [B, C] that is explained, minus that of its rival where there is one: [B]."""
        own = values.gather(1, index[:, None])[:, 0]
        return own if self.against is None else own - values.gather(1, self.against[:, None])[:, 0]

    def rows(self, inputs: Inputs) -> Tensor:
        """How much the prediction reads of each final position: [B, T], rows sum to 1."""
        mask = inputs.mask.float()
        if self.position is None:
            return mask / mask.sum(-1, keepdim=True)
        return mask.new_zeros(mask.shape).scatter_(1, self.position[:, None], 1)


@dataclass(frozen=True, slots=True)
class Scores:
    """What a method returns."""

    tokens: Tensor  # [B, T]  padding 0
    layers: Tensor | None = None  # [L, B, T, T]  a map per layer, for methods that have them
    output: Any = (
        None  # the model's output, where the method computed it: saves another forward pass
    )
    vectors: Tensor | None = (
        None  # [B, T, D]  what `tokens` aggregates, for methods with an option `aggregate`
    )
    extra: dict[str, Tensor] = field(
        default_factory=dict
    )  # [B] each: what there is to say about the whole


Method = Callable[..., Scores]  # (model, inputs, target, *, options) -> Scores

METHODS: dict[str, Method] = {}
_MANY_PASSES: set[Method] = set()


@overload
def method(function: Method) -> Method: ...
@overload
def method(*, many_passes: bool) -> Callable[[Method], Method]: ...
def method(
    function: Method | None = None,
    *,
    many_passes: bool = False,
) -> Method | Callable[[Method], Method]:
    """Register an attribution method under its function's name.

    Give `many_passes=True` to one that runs the model many times: the page then computes it only
    when its user asks.
    """

    def register(function: Method) -> Method:
        METHODS[function.__name__] = function
        if many_passes:
            _MANY_PASSES.add(function)
        return function

    return register if function is None else register(function)


def takes_many_passes(name: str) -> bool:
    """Whether a method runs the model many times for one text."""
    return METHODS[name] in _MANY_PASSES


def options_of(name: str) -> dict[str, Any]:
    """The options of a method with their defaults."""
    parameters = inspect.signature(METHODS[name]).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def summary_of(name: str) -> str:
    """What a method does, in one line."""
    return (inspect.getdoc(METHODS[name]) or "").partition("\n")[0]


def run(
    name: str,
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    layers: bool = True,
    **options: Any,
) -> Scores:
    """Call a method by name, its options checked, on a model that is proved to be what it is taken for."""
    known = validate(name, options)
    asked = {"layers": layers} if "layers" in known else {}
    plain = torch.autocast(inputs.mask.device.type, enabled=False)
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        plain,
    ):  # whatever the caller is in the middle of
        inputs, target = inputs.cloned(), target.cloned()
        if reads_model(name):
            prove_structure(model, inputs.tensors, inputs.mask)
        scores = METHODS[name](model, inputs, target, **asked, **options)
        prove_output(name, scores.output, model, inputs.tensors)
        return scores


def validate(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Raise UsageError for a method or an option that does not exist; return the options there are."""
    if name not in METHODS:
        raise UsageError(
            f"method {name!r} does not exist: choose one of {', '.join(sorted(METHODS))}"
        )
    known = options_of(name)
    validate_options(
        f"method {name}", options, {key: value for key, value in known.items() if key != "layers"}
    )
    for option, choices in _choices(METHODS[name]).items() if options else ():
        if option in options and options[option] not in choices:
            raise UsageError(
                f"method {name} takes {option} as one of {', '.join(choices)}, not {options[option]!r}"
            )
    return known


@cache
def _choices(function: Method) -> dict[str, tuple[str, ...]]:
    """The options whose type is a Literal, with its values."""
    return {
        name: get_args(kind)
        for name, kind in get_type_hints(function).items()
        if get_origin(kind) is Literal
    }


def validate_options(what: str, options: dict[str, Any], own: dict[str, Any]) -> None:
    """Raise UsageError for an option that something does not have, or a value that is not like its default in `own`."""
    for option, value in options.items():
        if option not in own:
            raise UsageError(
                f"{what} has no option {option!r}: it takes {', '.join(own) or 'none'}"
            )
        if not _fits(value, own[option]):
            like = type(own[option]).__name__
            raise UsageError(
                f"{what} takes {option} as {like}, like {own[option]!r}, not {value!r}"
            )


def reads_model(name: str) -> bool:
    """Whether a method's scores depend on the model at all: chance does not."""
    return name != "random"


def reads_class(name: str) -> bool:
    """Whether a method explains one class: maps of the layers, and chance, say the same of every class."""
    return "layers" not in options_of(name) and reads_model(name)


def blind(name: str, options: dict[str, Any]) -> str:
    """Why a method's scores do not speak for or against a class; empty where they do."""
    if not reads_class(name):
        return f"{name} is the same for every target"
    aggregate = {**options_of(name), **options}.get("aggregate", "sum")
    return (
        ""
        if aggregate == "sum"
        else f"{name} with aggregate={aggregate} says how much, not for or against what"
    )


def read_options(given: Iterable[str]) -> dict[str, Any]:
    """Options as users write them, like p=2; a value that is JSON (a number, true, null) is read as such."""
    options: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"option {pair!r} has no value: write it as NAME=VALUE, like p=2")
        try:
            options[name] = json.loads(value)
        except json.JSONDecodeError:
            options[name] = value
    return options


def _fits(value: Any, default: Any) -> bool:
    """Whether a value is of the kind that an option's default is."""
    alike: dict[type, tuple[type, ...]] = {
        bool: (bool,),
        int: (int,),
        float: (int, float),
        str: (str,),
        tuple: (list, tuple),
    }
    kinds = alike.get(type(default), (object,))
    return isinstance(value, kinds) and (isinstance(default, bool) or not isinstance(value, bool))
