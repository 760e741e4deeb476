"""Models that a user has already: of transformers, with a tokenizer or inside a pipeline."""

from collections.abc import Callable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from torch import nn

from alti._errors import UsageError
from alti.model.answers import Generation
from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.model.image_attribution import ImageAttribution
from alti.model.inside import language_model
from alti.model.model import Model
from alti.model.prompt import Chat
from alti.model.request import Output, Positions
from alti.model.source import By
from alti.model.tokenize import Bos

if TYPE_CHECKING:
    from PIL.Image import Image

F = TypeVar("F", bound=Callable[..., Any])
Text = str | Chat | None

TASKS = (  # of pipelines whose model reads a text, or an image, as it was given
    "feature-extraction",
    "fill-mask",
    "image-classification",
    "text-classification",
    "text-generation",
    "token-classification",
)


def own(model: Any, tokenizer: Any = None, *, graphs: bool = False) -> Model:
    """A transformers model with its tokenizer, a pipeline or a `Model`, as a `Model`."""
    if isinstance(model, Model):
        return model
    if isinstance(model, nn.Module):
        return Model(language_model(model), tokenizer, graphs=graphs)
    if not isinstance(getattr(model, "model", None), nn.Module) or not hasattr(model, "task"):
        raise UsageError(
            f"model is {type(model).__name__}: give a transformers model or pipeline, or to "
            "alti.load a hub name or a folder"
        )
    if model.task not in TASKS:
        raise UsageError(
            f"a pipeline for {model.task} puts more into a text than was given, or reads none: "
            f"give its model and tokenizer, or a pipeline for {', '.join(TASKS)}"
        )
    reader = model.image_processor if model.task == "image-classification" else model.tokenizer
    return Model(language_model(model.model), tokenizer or reader, graphs=graphs)


def _signed_as(method: Callable[..., Any]) -> Callable[[F], F]:
    """Show a function of a model and a tokenizer with the arguments of one of `Model`'s methods."""

    def signed(function: F) -> F:
        first = list(signature(function).parameters.values())[:2]
        _, *rest = signature(method).parameters.values()
        shown = signature(method).replace(parameters=[*first, *rest])
        function.__signature__ = shown  # type: ignore[attr-defined]  # what help and shells read
        return function

    return signed


@overload  # the first one is what completion shows
def explain(
    model: Any,
    tokenizer: Any = None,
    text: Text = None,
    text_pair: str | None = None,
    *,
    ids: Any = None,
    documents: Sequence[str] | None = None,
    choices: Sequence[str] | None = None,
    template: str | None = None,
    method: str = "alti",
    target: Output | None = None,
    against: Output | None = None,
    position: int | None = None,
    positions: None = None,
    answer: None = None,
    answer_ids: None = None,
    generate: None = None,
    total: bool = False,
    groups: By | None = None,
    bos: Bos = "auto",
    layers: bool | None = None,
    truncate: bool = False,
    **options: Any,
) -> Attribution: ...
@overload
def explain(
    model: Any, tokenizer: Any, text: "Image", *, method: str = "alti", **asked: Any
) -> ImageAttribution: ...
@overload
def explain(
    model: Any, tokenizer: Any = None, text: Text = None, *, total: Literal[True], **asked: Any
) -> Attribution: ...
@overload
def explain(
    model: Any, tokenizer: Any = None, text: Text = None, *, answer: str, against: str, **asked: Any
) -> Attribution: ...
@overload
def explain(
    model: Any,
    tokenizer: Any = None,
    text: Text = None,
    text_pair: str | None = None,
    *,
    positions: Positions | None = None,
    answer: str | None = None,
    answer_ids: Any = None,
    generate: Generation | None = None,
    **asked: Any,
) -> Attributions: ...
@_signed_as(Model.explain)
def explain(
    model: Any, tokenizer: Any = None, text: Any = None, text_pair: Any = None, **asked: Any
) -> Any:
    """Which tokens of a text a prediction rests on, for a model of your own.

    A transformers model comes with its tokenizer, a pipeline (or a `Model`) brings one along;
    everything behind that is as in `Model.explain`.

    >>> alti.explain(model, tokenizer, "A clever film.", method="consensus")
    >>> alti.explain(classifier, "A clever film.")  # a transformers pipeline
    """
    if tokenizer is not None and not callable(tokenizer):  # a text or an image: it was left out
        if isinstance(model, nn.Module) or None not in (text, text_pair):
            raise UsageError(
                "the text stands where the tokenizer is expected: give model, tokenizer, text, or "
                "a pipeline and a text"
            )
        tokenizer, text, text_pair = None, tokenizer, text if text_pair is None else text_pair
    return own(model, tokenizer).explain(text, text_pair, **asked)
