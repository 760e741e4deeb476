"""What results share: predictions, views, and sums over scores."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

from alti._errors import UsageError
from alti.methods import METHODS
from alti.mix.contributions import rollout
from alti.model.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One output of a model."""

    label: str | None = None  # None: the model has no head
    index: int | None = None  # of the label, or of the token in the vocabulary
    probability: float | None = None  # None: it has none (a regression value)
    position: int | None = None  # the token it is read from; None: the mean of all
    against: int | None = None  # the output that it is explained against; None: all others
    of: str | None = None  # the number that signed scores explain: logit, log_prob or probability


class Views:
    """What both results can be shown as; what was heard in a sound has views of its own."""

    source: Source

    def __str__(self) -> str:
        return self.render()

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

    def _repr_html_(self) -> str:
        card: str = import_module("alti.views.cards").card(self)
        return str(card)

    def to_latex(self, *, document: bool = False, words: bool = True) -> str:
        """The paper's saliency map: a table to \\input, or a document that compiles on its own."""
        name = "latex" if self.source.seconds is None else "sounds"
        latex = import_module(f"alti.views.{name}")
        if name == "sounds":
            heard: str = (latex.document if document else latex.table)(self)
            return heard
        written: str = (latex.document if document else latex.table)(self, words=words)
        return written


def together(source: Source, predictions: Sequence[Prediction]) -> Prediction:
    """Several predictions as one; those of an answer are its text, and its probability."""
    of = predictions[0].of
    if source.answer is None and len(predictions) == 1:
        return predictions[0]
    if source.answer is None:
        return Prediction(label=f"{len(predictions)} predictions", of=of)
    chances = [one.probability for one in predictions if one.probability is not None]
    return Prediction(label=source.texts[1], probability=math.prod(chances), of=of)


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
