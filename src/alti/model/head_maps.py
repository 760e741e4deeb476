"""What the heads of one layer do with a text: a map of attention and one of contributions each."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from alti._errors import AltiWarning, UsageError
from alti.methods.head_maps import OfHeads, head_maps
from alti.model.assembly import source_of
from alti.model.encoded import Encoded
from alti.model.head import Head
from alti.model.prompt import Chat
from alti.model.question import Question, read
from alti.model.source import Source
from alti.model.tokenize import Bos, Encoder
from alti.read.long import is_long_text
from alti.read.modules import network

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadMaps:
    """The maps of the heads of one layer; `contributions` are defined in `alti.contributions`.

    >>> maps = model.heads("A clever film.", layer=1)
    >>> maps.contributions[3]  # what head 3 brings to each token (a row), and from where
    >>> maps.plot().savefig("heads.svg")
    """

    source: Source
    layer: int  # counted from 0, as the maps of an explanation are
    rows: tuple[int, ...]  # n  the token that each row is of
    columns: tuple[int, ...]  # m  the token that each column is of
    attention: Tensor  # [H, n, m]  rows sum to 1
    contributions: Tensor  # [H, n, m]  what all heads have in a row sums to 1 − residual
    model: str = ""

    def __len__(self) -> int:
        return len(self.attention)

    @property
    def residual(self) -> Tensor:
        """The share of each row that comes through no head: what the token was before: [n]."""
        return 1 - self.contributions.sum((0, 2))

    @property
    def strengths(self) -> Tensor:
        """How much each head brings, of all that the layer adds up; the mean over rows: [H]."""
        return self.contributions.sum(2).mean(1)

    def row_of(self, position: int) -> int:
        """The row of a token; negative positions count from the last one."""
        number = position + len(self.source) if position < 0 else position
        if number not in self.rows:
            raise UsageError(
                f"position = {position} has no row here: those are of the tokens "
                f"{self.rows[0]} to {self.rows[-1]}"
            )
        return self.rows.index(number)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, ready for JSON."""
        return {
            "layer": self.layer,
            "tokens": list(self.source.tokens),
            "rows": list(self.rows),
            "columns": list(self.columns),
            "attention": self.attention.tolist(),
            "contributions": self.contributions.tolist(),
            "model": self.model,
        }

    def __str__(self) -> str:
        return self.render()

    def __repr__(self) -> str:
        heads, rows, columns = self.attention.shape
        return f"HeadMaps(layer={self.layer}, {heads} heads, {rows} × {columns} tokens)"

    def render(self, *, position: int | None = None, attention: bool = False) -> str:
        """For a terminal: a small map of each head, and what each brings to one token."""
        shown: str = import_module("alti.views.heads").render(
            self, position=position, attention=attention
        )
        return shown

    def plot(self, *, attention: bool = False) -> "Figure":
        """A small map of every head on one scale; needs alti[plots]."""
        figure: Figure = import_module("alti.views.plots").heads(self, attention=attention)
        return figure


class WithHeads:
    """What `Model` can say about the heads of its layers."""

    model: nn.Module
    name: str

    if TYPE_CHECKING:  # as Model has them

        @property
        def head(self) -> Head: ...
        @property
        def encoder(self) -> Encoder: ...

    def heads(
        self,
        text: str | Chat | None = None,
        text_pair: str | None = None,
        *,
        layer: int = -1,
        positions: Sequence[int] | None = None,
        p: int = 1,
        bos: Bos = "auto",
        truncate: bool = False,
        **asked: Any,
    ) -> HeadMaps:
        """What every head of one layer does with a text: its attention, and what it brings.

        The text is given as in `explain`, an answer too (`asked`). `layer` counts from 0, as the
        maps of `explain` do, and -1 is the last. `positions` are the tokens whose rows are wanted;
        without them all are kept, [H, T, T] numbers twice.

        >>> print(model.heads("A clever film.", layer=1))
        """
        question = Question(text=text, text_pair=text_pair, **asked)
        question.check(self.head)
        encoded = read(question, self.model, self.encoder, truncate=truncate, bos=bos)
        rows = None if positions is None else _rows(positions, encoded)
        if rows is None:
            _warn_of_size(self.model, len(encoded.ids))
        inputs = self.encoder.collate([encoded])
        wanted = None if rows is None else torch.tensor([rows], device=inputs.mask.device)
        maps = head_maps(self.model, inputs, layer, p=p, rows=wanted)
        return _assembled(maps, encoded, rows, self.name)


def _rows(positions: Sequence[int], encoded: Encoded) -> list[int]:
    """Positions of tokens, negative ones counted from the end, as rows."""
    count = len(encoded.ids)
    if encoded.decoder is not None:
        raise UsageError(
            "positions choose rows of one stack, and an encoder–decoder has two: leave them out"
        )
    wrong = [place for place in positions if not -count <= place < count]
    if wrong or not positions:
        given = wrong[0] if wrong else "empty"
        raise UsageError(
            f"positions: {given} is outside the text, whose tokens are 0 to {count - 1}"
        )
    return [place % count for place in positions]


def _assembled(maps: OfHeads, encoded: Encoded, rows: list[int] | None, name: str) -> HeadMaps:
    every = range(len(encoded.ids))
    whole = maps.attention.shape[-1]
    return HeadMaps(
        source=source_of(encoded),
        layer=maps.layer,
        rows=tuple(every[maps.place.rows] if rows is None else rows),
        columns=tuple(every[maps.place.columns][:whole]),
        attention=maps.attention[0].cpu(),
        contributions=maps.contributions[0].cpu(),
        model=name,
    )


def _warn_of_size(model: nn.Module, tokens: int) -> None:
    """The maps of a long text are large, and are kept because they were asked for."""
    if not is_long_text(tokens):
        return
    heads = network(model).config.num_attention_heads
    size = 2 * heads * tokens**2 * 4
    warnings.warn(
        f"heads keeps 2 maps of {tokens} × {tokens} numbers for each of {heads} heads: "
        f"{size:,} bytes; positions=[…] keeps some rows alone",
        AltiWarning,
        stacklevel=3,
    )
