"""The result for one prediction: which tokens it rests on."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from torch import Tensor

from alti._errors import UsageError
from alti.model import stored
from alti.model.content import Content
from alti.model.lens import Lens
from alti.model.results import OfOne, Prediction, Result, added_up, relevance, source_share
from alti.model.source import By, Source

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:

    def __getattr__(name: str) -> Any:
        """Pickles of before know the result for several predictions by this module."""
        if name == "Attributions":
            return import_module("alti.model.attributions").Attributions
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


PLOTS = ("tokens", "matrix", "layers", "graph", "lens")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Attribution(Result, OfOne):
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
    def lens(self) -> Lens | None:
        """What the model would have said after each layer (explain with lens=True)."""
        return self.prediction.lens

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
        if not isinstance(k, Integral) or k < 0:
            raise UsageError(f"k = {k!r} is not a number of tokens: give 0 or more")
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
        return relevance(self.layers, self.method, layer)

    def plot(self, kind: str = "tokens", **options: Any) -> "Figure":
        """A picture of the tokens, a layer's matrix, all layers or the graph (`alti.plots`).

        >>> attribution.plot("matrix", layer=2).savefig("matrix.svg")
        """
        if kind not in PLOTS:
            raise UsageError(f"plot {kind!r} does not exist: choose from {', '.join(PLOTS)}")
        drawn = getattr(import_module("alti.views.plots"), kind)(self, **options)
        figure: Figure = (drawn[0] if kind == "layers" else drawn).get_figure(root=True)
        return figure

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """What to_dict() gave, also after a round trip through JSON, and also of format 1.

        Types, sizes, offsets and segments are checked, and the checksum where there is one:
        LoadError for whatever cannot be right.
        """
        return cls._of(stored.from_dict(plain, "attribution"))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what save() wrote, checked as in from_dict; files of format 1 are read too."""
        return cls._of(stored.load(path, "attribution"))

    def _content(self) -> Content:
        return Content(
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
    def _of(cls, content: Content) -> Self:
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
