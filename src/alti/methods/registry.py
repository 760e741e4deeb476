"""The table of attribution methods, what each says about itself, and how one is called by name."""

import inspect
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Literal, get_args, get_origin, get_type_hints, overload

import torch
from torch import Tensor, nn

from alti._errors import UsageError
from alti.methods.options import Option, option_of
from alti.methods.proofs import prove_output, prove_structure
from alti.methods.types import Inputs, Scores, Target
from alti.read.quantised import said_in_one_sentence

Function = Callable[..., Scores]  # (model, inputs, target, *, options) -> Scores


@dataclass(frozen=True)
class Method:
    """A function that scores tokens, and its properties; called like the function."""

    function: Function
    class_specific: bool = False  # scores differ from class to class
    signed: bool | dict[str, str] = False  # negative scores speak against; or: with these options
    reads_model: bool = True  # chance does not
    shares: bool = True  # rows of its maps sum to 1
    second_norm: bool = False  # needs the norm after the feed-forward layer (post-norm families)
    recordable: bool = False  # reads nothing from a GPU before it is done: can be a CUDA graph
    many_passes: bool = False  # runs the model many times for a text
    shortens: bool | dict[str, str] = False  # takes tokens out of the text; or: with these options
    takes_groups: bool = False  # scores groups of tokens where there are some, one column for each
    library: str = ""  # a package that it needs and that not every user has installed
    # how its `vectors` become scores: (vectors [B, K, T, D], mask [B, T], its options) -> [B, K, T]
    aggregate: Callable[..., Tensor] | None = None

    def __call__(self, *args: Any, **options: Any) -> Scores:
        return self.function(*args, **options)

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def is_installed(self) -> bool:
        """Whether the package that it needs is there."""
        return not self.library or find_spec(self.library) is not None

    @cached_property
    def summary(self) -> str:
        """What it does, in one line."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @cached_property
    def draws_maps(self) -> bool:
        """Whether it draws a map of every layer, which `layers=True` keeps."""
        return "layers" in inspect.signature(self.function).parameters

    @property
    def shares_of_input(self) -> bool:
        """Whether its scores say which share of a prediction each token has: they sum to 1."""
        return self.draws_maps and self.shares

    @cached_property
    def options(self) -> dict[str, Any]:
        """Its own options with their defaults."""
        parameters = inspect.signature(self.function).parameters.values()
        own = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        return {name: default for name, default in own.items() if name != "layers"}

    @cached_property
    def choices(self) -> dict[str, tuple[str, ...]]:
        """The options that take one of some values, with these."""
        hints = get_type_hints(self.function).items()
        return {name: get_args(hint) for name, hint in hints if get_origin(hint) is Literal}

    @cached_property
    def declared(self) -> dict[str, Option]:
        """Its options with their kinds, bounds and help."""
        pairs = self.options.items()
        return {name: option_of(name, x, self.choices.get(name, ())) for name, x in pairs}

    def of(self, options: dict[str, Any]) -> str | None:
        """The number that its scores explain with these options; None: no number of a class."""
        return {**self.options, **options}.get("of") if self.class_specific else None

    def aggregated(self, vectors: Tensor, mask: Tensor, options: dict[str, Any]) -> Tensor:
        """The scores [B, K, T] that it makes of vectors [B, K, T, D]."""
        if self.aggregate is None:
            raise TypeError(f"{self.name} has no vectors")
        return self.aggregate(vectors, mask, **{**self.options, **options})

    def is_signed(self, options: dict[str, Any]) -> bool:
        """Whether its scores speak for and against a class, with these options."""
        return self._holds(self.signed, options)

    def shortens_with(self, options: dict[str, Any]) -> bool:
        """Whether it takes tokens out of the text, with these options."""
        return self._holds(self.shortens, options)

    def _holds(self, property: bool | dict[str, str], options: dict[str, Any]) -> bool:
        if isinstance(property, bool):
            return property
        given = {**self.options, **options}
        return all(given.get(name) == value for name, value in property.items())


METHODS: dict[str, Method] = {}


@overload
def method(function: Function, /) -> Method: ...
@overload
def method(**properties: Any) -> Callable[[Function], Method]: ...
def method(
    function: Function | None = None, /, **properties: Any
) -> Method | Callable[[Function], Method]:
    """Register an attribution method under its function's name, with the properties of `Method`.

    >>> @method(class_specific=True, signed=True)
    ... def mine(model, inputs, target, *, strength: float = 1.0) -> Scores: ...
    """

    def register(function: Function) -> Method:
        METHODS[function.__name__] = Method(function, **properties)
        return METHODS[function.__name__]

    return register if function is None else register(function)


def named(name: str) -> Method:
    """A method by its name."""
    if name not in METHODS:
        known = ", ".join(sorted(METHODS))
        raise UsageError(f"method {name!r} does not exist: choose one of {known}")
    return METHODS[name]


def run(
    name: str,
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    layers: bool = True,
    **options: Any,
) -> Scores:
    """Call a method by name, its options validated, on a model that is proved to be read right."""
    validate(name, options)
    return call(METHODS[name], model, inputs, target, layers=layers, **options)


def call(
    chosen: Method,
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    layers: bool = True,
    **options: Any,
) -> Scores:
    """Call a method with options that are known to be right."""
    kept = {"layers": layers} if chosen.draws_maps else {}
    plain = torch.autocast(inputs.mask.device.type, enabled=False)
    with torch.inference_mode(False), torch.enable_grad(), plain:  # whatever the caller is in
        inputs, target = inputs.cloned(), target.cloned()
        with said_in_one_sentence(model, chosen.name):
            if chosen.reads_model:
                prove_structure(model, inputs.tensors, inputs.mask)
            scores = chosen(model, inputs, target, **kept, **options)
        if scores.tokens.dim() != 3:
            raise UsageError(
                f"method {chosen.name} returned scores of shape {list(scores.tokens.shape)}: give "
                "[texts, predictions, tokens]"
            )
        prove_output(chosen.name, scores.output, model, _asked(scores.output, inputs, target))
        return _together(chosen, scores, target) if target.total else scores


def _asked(output: Any, inputs: Inputs, target: Target) -> dict[str, Tensor]:
    """What the model was given for this output."""
    logits = getattr(output, "logits", None)
    narrow = logits is not None and target.has_kept(logits)
    return inputs.asking(target) if narrow else inputs.tensors


def _together(chosen: Method, scores: Scores, target: Target) -> Scores:
    """Rows [B, K, T] as one [B, 1, T]: their sum, or their mean for a method without a class."""
    rows = scores.tokens
    if rows.shape[1] == 1:
        return scores
    real = torch.ones_like(rows[..., :1]) if target.real is None else target.real[..., None]
    total = (rows * real).sum(1, keepdim=True)
    if not chosen.class_specific:
        total = total / real.sum(1, keepdim=True)
    extra = {name: values[:, :1] for name, values in scores.extra.items()}
    return replace(scores, tokens=total, vectors=None, extra=extra)


def validate(name: str, options: dict[str, Any]) -> None:
    """Raise UsageError for a method or an option that does not exist."""
    chosen = named(name)
    validate_options(f"method {name}", options, chosen.options)
    for option, choices in chosen.choices.items() if options else ():
        if option in options and options[option] not in choices:
            raise UsageError(
                f"method {name} takes {option} as one of {', '.join(choices)}, "
                f"not {options[option]!r}"
            )


def validate_options(what: str, options: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Raise UsageError for an option that is not in `defaults`, or a value unlike its default."""
    for option, value in options.items():
        if option not in defaults:
            known = ", ".join(defaults) or "none"
            raise UsageError(f"{what} has no option {option!r}: it takes {known}")
        default = defaults[option]
        if not _is_like(value, default):
            kind = type(default).__name__
            raise UsageError(f"{what} takes {option} as {kind}, like {default!r}, not {value!r}")


def read_options(given: Iterable[str]) -> dict[str, Any]:
    """Options as users write them, like p=2; a value that is JSON (a number, true) is read so."""
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


def _is_like(value: Any, default: Any) -> bool:
    """Whether a value is of the kind that an option's default is."""
    kinds: dict[type, tuple[type, ...]] = {
        bool: (bool,),
        int: (int,),
        float: (int, float),
        str: (str,),
        tuple: (list, tuple),
    }
    allowed = kinds.get(type(default), (object,))
    return isinstance(value, allowed) and (isinstance(default, bool) or not isinstance(value, bool))
