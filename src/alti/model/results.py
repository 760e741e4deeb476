"""What results share: predictions, equality, exports, views, and sums over scores."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from alti._errors import UsageError
from alti.methods import METHODS
from alti.mix.contributions import rollout
from alti.model import stored
from alti.model.content import Content
from alti.model.lens import Lens
from alti.model.source import Source

if TYPE_CHECKING:
    import numpy as np
    import pandas


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One output of a model."""

    label: str | None = None  # None: the model has no head
    index: int | None = None  # of the label, or of the token in the vocabulary
    probability: float | None = None  # None: it has none (a regression)
    position: int | None = None  # the token it is read from; None: the mean of all
    against: int | None = None  # the output that it is explained against; None: all others
    of: str | None = None  # the number that signed scores explain: logit, log_prob or probability
    value: float | None = None  # what a regression says; None: it is none
    lens: Lens | None = None  # what the model would have said after each layer, if that was asked
    steps: tuple[float, ...] = field(default=(), compare=False)  # of each token; it is not stored

    def __post_init__(self) -> None:
        if isinstance(self.lens, dict):  # as it is stored
            object.__setattr__(self, "lens", Lens.of(self.lens))

    def __repr__(self) -> str:
        """What is known of it, without what is as by default."""
        known = ((each, getattr(self, each.name)) for each in fields(self))
        said = [f"{each.name}={value!r}" for each, value in known if value != each.default]
        return f"Prediction({', '.join(said)})"


class Scored:
    """What all results can do: give scores to numpy, themselves as JSON, a line in a list."""

    scores: Tensor

    def to_dict(self, *, checksum: bool = False) -> dict[str, Any]:
        raise NotImplementedError  # as each of them is stored

    def to_json(self, *, indent: int | None = None, checksum: bool = False) -> str:
        """`to_dict()` as JSON; `from_dict(json.loads(…))` reads it."""
        plain = self.to_dict(checksum=checksum)
        return json.dumps(plain, indent=indent, ensure_ascii=False, allow_nan=False)

    @property
    def values(self) -> "np.ndarray[Any, Any]":
        """The scores as a numpy array of its own: [T], of several predictions [K, T]."""
        scores = self.scores.detach().cpu()
        if scores.dtype == torch.bfloat16:  # numpy has none
            scores = scores.float()
        return scores.numpy().copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> "np.ndarray[Any, Any]":
        if copy is False:
            raise ValueError("an array of scores is a copy: leave copy=False out")
        return self.values if dtype is None else self.values.astype(dtype)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """IPython: the text by itself, a line inside a list."""
        printer.text(str(self) if len(printer.stack) < 2 else repr(self))


class OfOne:
    """What a result about one prediction says of it."""

    prediction: Prediction

    @property
    def label(self) -> str | None:
        return self.prediction.label

    @property
    def probability(self) -> float | None:
        return self.prediction.probability

    @property
    def target(self) -> int | None:
        return self.prediction.index


class Result(Scored):
    """What results about texts can do: be compared, computed with, exported and shown.

    What was heard in a sound has views of its own.
    """

    source: Source

    def _content(self) -> Content:
        raise NotImplementedError  # as each of them is stored

    def __eq__(self, other: object) -> bool:
        """Whether everything is the same, as it is of a result that was saved and loaded."""
        if type(other) is not type(self):
            return NotImplemented
        return self is other or _same(self._content(), other._content())

    def __hash__(self) -> int:
        return hash((type(self), self.source))

    def to_dict(self, *, checksum: bool = False) -> dict[str, Any]:
        """Plain lists, numbers and strings, ready for JSON; AltiError for what JSON has not.

        Every number is finite: nan and infinity are refused rather than written as null, from
        which nobody could tell what was there. A dict may be changed by hand, so it carries no
        checksum; with checksum=True it does, and from_dict refuses it once anything is another.
        """
        return stored.to_dict(self._content(), checksum=checksum)

    def save(self, path: str | Path) -> None:
        """Write everything to one file: safetensors with the texts as JSON in its header.

        The file is replaced as a whole and has a checksum, which load verifies. Numbers that are
        not finite are refused as in to_dict.
        """
        stored.save(self._content(), path)

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each token (and prediction): its score, its characters, what it is of.

        >>> model.explain("A clever film.").words().to_dataframe().sort_values("score")
        """
        return import_module("alti.views.exports").frame(self)

    def to_shap(self) -> Any:
        """SHAP's `Explanation`, for its plots: values [T], of several predictions [T, K].

        SHAP draws values as steps from a base value to the model's output. Those of `linear` are:
        its base value is what biases carry. Of other methods it is 0, and the end is their sum.

        >>> shap.plots.text(model.explain("A clever film.", method="linear").to_shap())
        """
        return import_module("alti.views.exports").shap(self)

    def to_captum(self) -> Any:
        """Captum's `VisualizationDataRecord`, of several predictions a list of them.

        Colours are relative to the largest score. There is no true class: set `true_class`.

        >>> captum.attr.visualization.visualize_text([model.explain("A clever film.").to_captum()])
        """
        return import_module("alti.views.exports").captum(self)

    def __str__(self) -> str:
        return self.render()

    def __repr__(self) -> str:
        line: str = import_module("alti.views.notebooks").line(self)
        return line

    _repr_pretty_ = Scored._repr_pretty_  # IPython asks the class that has __repr__

    def _repr_html_(self) -> str:
        card: str = import_module("alti.views.cards").card(self)
        return str(card)

    def render(self, *, words: bool = True, bars: bool = False) -> str:
        """The text for a terminal, on coloured backgrounds where it has colours; else bars."""
        if self.source.seconds is not None:
            heard: str = import_module("alti.views.sounds").render(self)
            return heard
        shown: str = import_module("alti.views.terminal").render(self, words=words, bars=bars)
        return shown

    def to_html(self, *, words: bool = True) -> str:
        """A web page of its own; it opens with words or tokens, and switches between them."""
        if self.source.seconds is not None:
            heard: str = import_module("alti.views.sounds").page(self)
            return heard
        page: str = import_module("alti.views.html").page(self, words=words)
        return page

    def to_latex(self, *, document: bool = False, words: bool = True) -> str:
        """The paper's saliency map: a table to \\input, or a document that compiles on its own."""
        name = "latex" if self.source.seconds is None else "sounds"
        latex = import_module(f"alti.views.{name}")
        if name == "sounds":
            heard: str = (latex.document if document else latex.table)(self)
            return heard
        written: str = (latex.document if document else latex.table)(self, words=words)
        return written


def _same(first: Content, second: Content) -> bool:
    """Whether two results hold the same: numbers to the bit, options as JSON writes them."""
    (texts, numbers), (other_texts, other_numbers) = _apart(first), _apart(second)
    pairs = zip(numbers, other_numbers, strict=True)
    return texts == other_texts and all(_equal(one, other) for one, other in pairs)


def _apart(content: Content) -> tuple[Any, list[Tensor | None]]:
    """Texts and tensors."""
    texts = {each.name: getattr(content, each.name) for each in fields(content)}
    source = dict(texts.pop("source"))
    tensors = [texts.pop("scores"), texts.pop("layers"), source.pop("special")]
    return json.loads(json.dumps([texts, source], default=repr)), tensors


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    alike = one.dtype == other.dtype and one.shape == other.shape
    return alike and bool((one.cpu() == other.cpu()).all())


def together(source: Source, predictions: Sequence[Prediction]) -> Prediction:
    """Several predictions as one; those of an answer are its text, and its probability."""
    of = predictions[0].of
    if source.answer is None and len(predictions) == 1:
        return predictions[0]
    if source.answer is None:
        return Prediction(label=f"{len(predictions)} predictions", of=of)
    chances = [one.probability for one in predictions if one.probability is not None]
    chance = math.prod(chances)
    return Prediction(label=source.texts[1], probability=chance, of=of, steps=tuple(chances))


def log_prob_of(source: Source, predictions: Sequence[Prediction]) -> dict[str, float]:
    """The logarithm of an answer's probability, which itself is 0 for a long one."""
    chances = [one.probability for one in predictions]
    if source.answer is None or not all(chances):
        return {}
    return {"log_prob": sum(math.log(chance) for chance in chances if chance)}


def source_share(source: Source, scores: Tensor) -> Tensor:
    """The share of what an encoder read in scores [..., T]."""
    if source.decoder is None:
        raise UsageError(
            "this text has no source and prefix, whose shares could be compared: explain an "
            "encoder–decoder with answer= or generate="
        )
    sizes = scores.abs()
    own = sizes[..., : source.decoder].sum(-1)
    return own / sizes.sum(-1).clamp_min(torch.finfo(sizes.dtype).tiny)


def added_up(scores: Tensor, groups: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Scores [..., T] of groups of tokens, and of the tokens that are in none."""
    if not groups:
        return scores[..., :0], scores.sum(-1)
    sums = torch.stack([scores[..., list(tokens)].sum(-1) for tokens in groups], -1)
    rest = torch.ones(scores.shape[-1], dtype=torch.bool)
    rest[[token for tokens in groups for token in tokens]] = False
    return sums, scores[..., rest].sum(-1)


def relevance(layers: Tensor | None, method: str, layer: int) -> Tensor:
    if layers is None:
        raise UsageError(
            "this attribution has no maps per layer: explain with layers=True and a method that "
            "draws them (alti)"
        )
    count = len(layers)
    if not -count <= layer < count:
        raise UsageError(f"layer = {layer} does not exist: the model has {count}, 0 to {count - 1}")
    shares = method not in METHODS or METHODS[method].shares
    return rollout(layers[: layer % count + 1], rescale=not shares)
