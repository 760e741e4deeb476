"""The results: which tokens a prediction, or each of several, rests on."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from alti._errors import UsageError
from alti.methods import METHODS
from alti.mix.contributions import rollout
from alti.model import stored
from alti.model.alignment import NEAR, Alignment, align
from alti.model.entities import entities_of
from alti.model.source import By, Source

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOTS = ("tokens", "matrix", "layers", "graph")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One output of a model."""

    label: str | None = None  # None: the model has no head
    index: int | None = None  # of the label, or of the token in the vocabulary
    probability: float | None = None  # None: it has none (a regression value)
    position: int | None = None  # the token it is read from; None: the mean of all
    against: int | None = None  # the output that it is explained against; None: all others
    of: str | None = None  # the number that signed scores explain: logit, log_prob or probability


class _Views:
    """What both results can be shown as."""

    def __str__(self) -> str:
        return self.render()

    def render(self, *, words: bool = True, bars: bool = False) -> str:
        """The text for a terminal, on coloured backgrounds where it has colours; else bars."""
        shown: str = import_module("alti.views.terminal").render(self, words=words, bars=bars)
        return shown

    def to_html(self, *, words: bool = True) -> str:
        """A web page of its own; it opens with words or tokens, and switches between them."""
        page: str = import_module("alti.views.html").page(self, words=words)
        return page

    def _repr_html_(self) -> str:
        card: str = import_module("alti.views.cards").card(self)
        return str(card)

    def to_latex(self, *, document: bool = False, words: bool = True) -> str:
        """The paper's saliency map: a table to \\input, or a document that compiles on its own."""
        latex = import_module("alti.views.latex")
        written: str = (latex.document if document else latex.table)(self, words=words)
        return written


@dataclass(frozen=True, eq=False, kw_only=True)
class Attribution(_Views):
    """How much each token of a text counts for one prediction.

    Iterating gives (token, score) pairs in the order of the text:

    >>> for token, score in attribution: ...
    """

    source: Source
    prediction: Prediction
    scores: Tensor  # [T]
    method: str
    layers: Tensor | None = None  # [L, T, T]  C^l; row i: what token i is made of
    model: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, float] = field(default_factory=dict)  # about the result as a whole

    @property
    def text(self) -> str:
        return self.source.texts[0]

    @property
    def text_pair(self) -> str | None:
        return self.source.texts[1] if len(self.source.texts) > 1 else None

    @property
    def tokens(self) -> tuple[str, ...]:
        return self.source.tokens

    @property
    def offsets(self) -> tuple[tuple[int, int], ...]:
        return self.source.offsets

    @property
    def segments(self) -> tuple[int, ...]:
        return self.source.segments

    @property
    def special(self) -> Tensor:  # [T]
        return self.source.special

    @property
    def cut(self) -> tuple[str, ...]:
        return self.source.cut

    @property
    def label(self) -> str | None:
        return self.prediction.label

    @property
    def probability(self) -> float | None:
        return self.prediction.probability

    @property
    def target(self) -> int | None:
        return self.prediction.index

    @property
    def position(self) -> int | None:
        return self.prediction.position

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return iter(zip(self.tokens, self.scores.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> tuple[str, float]:
        return self.tokens[index], float(self.scores[index])

    def top(self, k: int = 5) -> list[tuple[str, float]]:
        """The k tokens (or groups) with the highest scores.

        Special tokens are not ranked, nor is an answer that is explained as a whole: its prompt is.
        """
        if k < 0:
            raise UsageError(f"k = {k} is not a number of tokens: give 0 or more")
        end = self.source.answer if self.target is None else None
        order = self.scores[:end].argsort(descending=True, stable=True).tolist()
        return [self[i] for i in order if not self.special[i]][:k]

    def grouped(self, by: By) -> Self:
        """The scores of words, sentences, lines or spans of characters: sums over their tokens.

        Tokens of no group (special tokens, template) are not ranked; they are extra["ungrouped"].

        >>> attribution.grouped("sentence").top(3)
        >>> attribution.grouped([(0, 12), (13, 40)])
        """
        if self.source.is_grouped(by):
            return self
        source, groups = self.source.grouped(by)
        scores, rest = added_up(self.scores, groups)
        return replace(
            self,
            source=source,
            prediction=replace(self.prediction, position=None),
            scores=scores,
            layers=None,
            extra={**self.extra, "ungrouped": float(rest)},
        )

    def words(self) -> Self:
        """The scores of words, the same for WordPiece, BPE and SentencePiece: `grouped("word")`."""
        return self.grouped("word")

    @property
    def source_share(self) -> Tensor:
        """How much of an encoder–decoder's prediction comes from its source, as a share: []."""
        return source_share(self.source, self.scores)

    def relevance(self, layer: int = -1) -> Tensor:
        """What every token is made of after a layer (0 is the first): R^l = C^l · … · C^1, [T, T].

        `scores` is a row of the last one, except for raw attention: the last layer alone.
        """
        return _relevance(self.layers, self.method, layer)

    def plot(self, kind: str = "tokens", **options: Any) -> "Figure":
        """A picture of the tokens, a layer's matrix, all layers or the graph (`alti.plots`).

        >>> attribution.plot("matrix", layer=2).savefig("matrix.svg")
        """
        if kind not in PLOTS:
            raise UsageError(f"plot {kind!r} does not exist: choose from {', '.join(PLOTS)}")
        drawn = getattr(import_module("alti.views.plots"), kind)(self, **options)
        figure: Figure = (drawn[0] if kind == "layers" else drawn).get_figure(root=True)
        return figure

    def to_dict(self, *, checksum: bool = False) -> dict[str, Any]:
        """Plain lists, numbers and strings, ready for JSON; AltiError for what JSON has not.

        Every number is finite: nan and infinity are refused rather than written as null, from
        which nobody could tell what was there. A dict may be changed by hand, so it carries no
        checksum; with checksum=True it does, and from_dict refuses it once anything is another.
        """
        return stored.to_dict(self._content(), checksum=checksum)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """What to_dict() gave, also after a round trip through JSON, and also of format 1.

        Types, sizes, offsets and segments are checked, and the checksum where there is one:
        LoadError for whatever cannot be right.
        """
        return cls._of(stored.from_dict(plain, "attribution"))

    def save(self, path: str | Path) -> None:
        """Write everything to one file: safetensors with the texts as JSON in its header.

        The file is replaced as a whole and has a checksum, which load verifies. Numbers that are
        not finite are refused as in to_dict.
        """
        stored.save(self._content(), path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what save() wrote, checked as in from_dict; files of format 1 are read too."""
        return cls._of(stored.load(path, "attribution"))

    def _content(self) -> stored.Content:
        return stored.Content(
            "attribution",
            stored.source_fields(self.source),
            [stored.fields_of(self.prediction)],
            self.scores[None],
            self.layers,
            self.method,
            self.model,
            self.options,
            [self.extra],
        )

    @classmethod
    def _of(cls, content: stored.Content) -> Self:
        return cls(
            source=stored.source_of(content),
            prediction=Prediction(**content.predictions[0]),
            scores=content.scores[0],
            method=content.method,
            layers=content.layers,
            model=content.model,
            options=content.options,
            extra=content.extra[0],
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Attributions(_Views):
    """How much each token of a text counts for each of several predictions.

    Iterating gives an `Attribution` for each of them; `total()` is one for all of them together.
    """

    source: Source
    predictions: tuple[Prediction, ...]  # K
    scores: Tensor  # [K, T]
    method: str
    layers: Tensor | None = None  # [L, T, T]  the same for every prediction
    model: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    extra: tuple[dict[str, float], ...] = ()  # about each result as a whole

    def __len__(self) -> int:
        return len(self.predictions)

    def __iter__(self) -> Iterator[Attribution]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, k: int) -> Attribution:
        return self._one(self.predictions[k], self.scores[k], self.extra[k] if self.extra else {})

    def _one(self, prediction: Prediction, scores: Tensor, extra: dict[str, float]) -> Attribution:
        return Attribution(
            source=self.source,
            prediction=prediction,
            scores=scores,
            method=self.method,
            layers=self.layers,
            model=self.model,
            options=self.options,
            extra=extra,
        )

    def total(self, *, through_answer: bool = False) -> Attribution:
        """All predictions together: the sum of their scores, or their mean if these are shares.

        With `through_answer`, what an answer's tokens took from earlier ones is passed on to the
        prompt, which those rest on: only for shares.
        """
        mean = self.method in METHODS and not METHODS[self.method].class_specific
        rows = self._through_answer() if through_answer else self.scores
        ungrouped = [one["ungrouped"] for one in self.extra if "ungrouped" in one]
        extra = {"ungrouped": sum(ungrouped) / (len(self) if mean else 1)} if ungrouped else {}
        extra |= log_prob_of(self.source, self.predictions)
        prediction = together(self.source, self.predictions)
        return self._one(prediction, rows.mean(0) if mean else rows.sum(0), extra)

    def _through_answer(self) -> Tensor:
        """(I − A)⁻¹ P of rows [P | A], A strictly lower triangular: [K, T], 0 at the answer."""
        start = self.source.answer
        whole = self.source.by == "token" and start is not None
        if start is None or not whole or len(self) != len(self.source) - start:
            raise UsageError(
                "through_answer = True needs every token of an answer: explain with answer= or "
                "generate=, and take the total before grouping"
            )
        if self.method not in METHODS or not METHODS[self.method].shares_of_input:
            raise UsageError(
                f"through_answer = True passes shares on, and {self.method} gives none: use alti"
            )
        rows = self.scores.double()
        own = rows[:, start:].tril(-1)  # [K, K]
        identity = torch.eye(len(self), dtype=own.dtype)
        passed = torch.linalg.solve_triangular(identity - own, rows[:, :start], upper=False)
        return torch.cat([passed, torch.zeros_like(own)], 1).to(self.scores.dtype)

    def alignment(self, *, near: float = NEAR, spaced: bool = False) -> Alignment:
        """Which words of the source each word of a target comes from.

        A target word is linked to the source word with the highest score, and to others with at
        least `near` times that. `spaced`: words are what stands between spaces.

        >>> print(model.explain("Ein Hund läuft.", answer="A dog runs.").alignment())
        0-0 1-1 2-2 3-3
        """
        return align(self.source, self.scores, near=near, spaced=spaced)

    def grouped(self, by: By) -> Self:
        """The scores of words, sentences, lines or spans, as in `Attribution.grouped`."""
        if self.source.is_grouped(by):
            return self
        source, groups = self.source.grouped(by)
        scores, rest = added_up(self.scores, groups)
        extra = self.extra or ({},) * len(self)
        return replace(
            self,
            source=source,
            predictions=tuple(replace(one, position=None) for one in self.predictions),
            scores=scores,
            layers=None,
            extra=tuple(
                {**one, "ungrouped": float(left)} for one, left in zip(extra, rest, strict=True)
            ),
        )

    def entities(self) -> Self:
        """The entities that a token classifier finds: a prediction for each, of all its tokens.

        Scores are those of its tokens together, as in `total`; its probability is that all their
        labels are right. `.grouped("entity")` then adds up the scores of each entity's tokens.

        >>> model.explain("Ada Lovelace lived in London.", positions="all").entities()
        """
        found = entities_of(self.source, self.predictions)
        if not found:
            raise UsageError(
                "the model finds no entity here: every label is O; explain with positions='all'"
            )
        mean = self.method in METHODS and not METHODS[self.method].class_specific
        rows = [self.scores[list(one.members)] for one in found]
        texts = [self.source.texts[one.segment][slice(*one.span)] for one in found]
        of = self.predictions[0].of
        return replace(
            self,
            source=replace(self.source, parts=tuple(one.part() for one in found)),
            predictions=tuple(
                Prediction(label=f"{one.kind} {text!r}", probability=one.probability, of=of)
                for one, text in zip(found, texts, strict=True)
            ),
            scores=torch.stack([row.mean(0) if mean else row.sum(0) for row in rows]),
            extra=(),
        )

    def words(self) -> Self:
        """The scores of words: `grouped("word")`."""
        return self.grouped("word")

    @property
    def source_share(self) -> Tensor:
        """How much of each prediction of an encoder–decoder comes from its source: [K].

        The rest comes from the prefix of what it writes. Of signed scores, sizes are compared.
        """
        return source_share(self.source, self.scores)

    def relevance(self, layer: int = -1) -> Tensor:
        """What every token is made of after a layer, as in `Attribution.relevance`: [T, T]."""
        return _relevance(self.layers, self.method, layer)

    def plot(self, kind: str = "predictions", **options: Any) -> "Figure":
        """A picture: a row of tokens for each prediction; other kinds are drawn of `total()`."""
        if kind != "predictions":
            return self.total().plot(kind, **options)
        figure: Figure = (
            import_module("alti.views.plots").predictions(self, **options).get_figure(root=True)
        )
        return figure

    def to_dict(self, *, checksum: bool = False) -> dict[str, Any]:
        """Plain lists, numbers and strings, ready for JSON, as in `Attribution.to_dict`."""
        return stored.to_dict(self._content(), checksum=checksum)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """What to_dict() gave, checked."""
        return cls._of(stored.from_dict(plain, "attributions"))

    def save(self, path: str | Path) -> None:
        """Write everything to one file, as `Attribution.save` does."""
        stored.save(self._content(), path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what save() wrote, checked."""
        return cls._of(stored.load(path, "attributions"))

    def _content(self) -> stored.Content:
        return stored.Content(
            "attributions",
            stored.source_fields(self.source),
            [stored.fields_of(one) for one in self.predictions],
            self.scores,
            self.layers,
            self.method,
            self.model,
            self.options,
            list(self.extra) or [{} for _ in self.predictions],
        )

    @classmethod
    def _of(cls, content: stored.Content) -> Self:
        return cls(
            source=stored.source_of(content),
            predictions=tuple(Prediction(**one) for one in content.predictions),
            scores=content.scores,
            method=content.method,
            layers=content.layers,
            model=content.model,
            options=content.options,
            extra=tuple(content.extra),
        )


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


def _relevance(layers: Tensor | None, method: str, layer: int) -> Tensor:
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
