"""The result for an image: how much each patch counts for a prediction."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from alti._characters import plain
from alti._errors import UsageError
from alti.model import stored_image
from alti.model.results import OfOne, Prediction, Scored

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

Patch = tuple[int, int]  # its row and column


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ImageAttribution(Scored, OfOne):
    """How much each patch of an image counts for one prediction.

    Iterating gives ((row, column), score) pairs, row by row.
    """

    image: Any  # a PIL image: what the model saw
    prediction: Prediction
    scores: Tensor  # [rows, columns]
    method: str
    special: Tensor  # [n]  the scores of tokens that are no patches, like [CLS]
    layers: Tensor | None = None  # [L, T, T]  maps over these and all patches, row by row
    model: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, float] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        """Whether everything is the same, as it is of a result that was saved and loaded."""
        if type(other) is not type(self):
            return NotImplemented
        return self is other or stored_image.same(self._fields(), other._fields())

    def __hash__(self) -> int:
        return hash((type(self), self.label, self.method, self.image.size))

    def _fields(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __len__(self) -> int:
        return self.scores.numel()

    def __iter__(self) -> Iterator[tuple[Patch, float]]:
        for row, scores in enumerate(self.scores.tolist()):
            for column, score in enumerate(scores):
                yield (row, column), score

    def top(self, k: int = 5) -> list[tuple[Patch, float]]:
        """The k patches (or groups of them) with the highest scores."""
        if not isinstance(k, Integral) or k < 0:
            raise UsageError(f"k = {k!r} is not a number of patches: give 0 or more")
        return sorted(self, key=lambda pair: -pair[1])[:k]

    def grouped(self, size: int) -> Self:
        """Squares of size × size patches with the sums of their scores; what is left is smaller."""
        if not 1 <= size <= max(self.scores.shape):
            raise UsageError(
                f"size = {size} makes no groups of {' × '.join(map(str, self.scores.shape))} "
                "patches: give 1 or more, up to that"
            )
        rows, columns = self.scores.shape
        sums = [
            [float(self.scores[y : y + size, x : x + size].sum()) for x in range(0, columns, size)]
            for y in range(0, rows, size)
        ]
        return replace(self, scores=torch.tensor(sums, dtype=self.scores.dtype), layers=None)

    def box(self, left: int, top: int, right: int, bottom: int) -> float:
        """The sum over patches whose middle is in a box of pixels of `image`."""
        rows, columns = self.scores.shape
        y = (torch.arange(rows) + 0.5) * self.image.height / rows
        x = (torch.arange(columns) + 0.5) * self.image.width / columns
        inside = ((y >= top) & (y < bottom))[:, None] & ((x >= left) & (x < right))
        return float(self.scores[inside].sum())

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each patch (or group of them): where it is, and its score."""
        frame = import_module("alti.views.exports").library("pandas", "to_dataframe").DataFrame
        rows = [{"row": row, "column": column, "score": score} for (row, column), score in self]
        table: pandas.DataFrame = frame(rows)
        about = ("label", "probability", "method", "model")
        table.attrs |= {name: getattr(self, name) for name in about}
        return table

    def overlay(self, *, width: int = 448) -> Any:
        """A PIL image: the picture in grey under the colours of the scores."""
        return import_module("alti.views.pictures").overlay(self, width=width)

    def to_html(self) -> str:
        """A web page of its own, with the picture and the overlay side by side."""
        page: str = import_module("alti.views.pictures").page(self)
        return page

    def _repr_html_(self) -> str:
        fragment: str = import_module("alti.views.pictures").fragment(self)
        return fragment

    def plot(self, **options: Any) -> "Figure":
        """The picture, the overlay and its scale, with matplotlib."""
        drawn = import_module("alti.views.plots.pictures").picture(self, **options)
        figure: Figure = drawn.get_figure(root=True)
        return figure

    def __str__(self) -> str:
        return self.render()

    def __repr__(self) -> str:
        said = import_module("alti.views.pictures").caption(self)
        patches = " × ".join(map(str, self.scores.shape))
        best = ", ".join(f"{patch} {score:.3g}" for patch, score in self.top(3))
        return plain(f"<{type(self).__name__} {patches} patches: {said}: {best}>")

    _repr_pretty_ = Scored._repr_pretty_  # IPython asks the class that has __repr__

    def render(self) -> str:
        """A character for each patch, as dark as its score."""
        shown: str = import_module("alti.views.pictures").render(self)
        return shown

    def to_dict(self, *, checksum: bool = False) -> dict[str, Any]:
        """Plain lists, numbers and strings, ready for JSON, with the image as a PNG in base 64.

        As of a text: every number is finite, and with checksum=True from_dict refuses what was
        changed.
        """
        return stored_image.to_dict(self._fields(), checksum=checksum)

    def save(self, path: str | Path) -> None:
        """Write everything to one file: safetensors with the texts as JSON in its header."""
        stored_image.save(self._fields(), path)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """What to_dict() gave, also after a round trip through JSON; LoadError if it is wrong."""
        return cls(**stored_image.from_dict(plain))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what save() wrote, checked as in from_dict."""
        return cls(**stored_image.load(path))
