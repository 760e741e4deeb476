"""Which words of a source the words of a target come from: scores by word, and links."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from alti._errors import UsageError
from alti.model.source import Source
from alti.model.words import Span, members

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOTS = ("lines", "matrix")
NEAR = 0.5  # a source word with so much of the best one's score is linked too
SPACED = re.compile(r"\S+")

Words = list[tuple[Span, list[int]]]  # their characters and their tokens
Link = tuple[int, int]  # a word of the source, a word of the target; numbers from 0


@dataclass(frozen=True, eq=False, slots=True)
class Alignment:
    """Words of a source and of a target, and how much each of the latter rests on the former."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    scores: Tensor  # [target, source]
    links: tuple[Link, ...]
    by: str = ""  # the method and the model that it is made with, as views name them
    # For both texts: "", or what the model read in a word that it does not know ([UNK]).
    unknown: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    @property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The words of both texts as views show them: as typed, and what was read instead."""
        return _marked(self.source, self.unknown[0]), _marked(self.target, self.unknown[1])

    def __str__(self) -> str:
        """As tools for alignments write it: 0-0 1-2 …"""
        return " ".join(f"{i}-{j}" for i, j in self.links)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as JSON holds it."""
        return {
            "source": list(self.source),
            "target": list(self.target),
            "links": [list(link) for link in self.links],
            "scores": self.scores.tolist(),
        }

    def render(self) -> str:
        """Source and target side by side, and the matrix target × source, for a terminal."""
        shown: str = import_module("alti.views.alignments").render(self)
        return shown

    def to_html(self) -> str:
        """A web page of its own: links as lines, and the matrix."""
        page: str = import_module("alti.views.alignments").page(self)
        return page

    def to_latex(self, *, document: bool = False) -> str:
        """Lines between the texts (tikz), or a document with these and the matrix."""
        views = import_module("alti.views.alignments")
        written: str = (views.document if document else views.picture)(self)
        return written

    def plot(self, kind: str = "lines") -> "Figure":
        """A picture: lines between the texts, or the matrix target × source."""
        if kind not in PLOTS:
            raise UsageError(f"plot {kind!r} does not exist: choose from {', '.join(PLOTS)}")
        drawn = getattr(import_module("alti.views.plots"), f"alignment_{kind}")(self)
        figure: Figure = drawn.get_figure(root=True)
        return figure


def align(source: Source, scores: Tensor, *, near: float = NEAR, spaced: bool = False) -> Alignment:
    """The alignment that scores [K, T] of all tokens of a target give.

    A target word is linked to the source word with the highest score, and to every other one with
    at least `near` times that (1: the best alone). A word with no positive score stays alone. Words
    are alti's own, or (`spaced`) what stands between spaces, for texts that are tokenized already.
    """
    if not 0 < near <= 1:
        raise UsageError(f"near = {near} is no share of the best score: give one above 0, up to 1")
    matrix, words = by_words(source, scores, spaced=spaced)
    links = [
        (i, j)
        for j, row in enumerate(matrix.tolist())
        for i, score in enumerate(row)
        if score > 0 and score >= near * max(row)
    ]
    read, written = (
        tuple(source.texts[side][slice(*span)] for span, _ in found)
        for side, found in enumerate(words)
    )
    unknown = _unknown(source, words[0]), _unknown(source, words[1])
    return Alignment(read, written, matrix, tuple(sorted(links)), unknown=unknown)


def _marked(words: tuple[str, ...], marks: tuple[str, ...]) -> tuple[str, ...]:
    pairs = zip_longest(words, marks, fillvalue="")
    return tuple(f"{word} {mark}" if mark else word for word, mark in pairs)


def _unknown(source: Source, words: Words) -> tuple[str, ...]:
    if not source.unknown:
        return ()
    return tuple(max(source.unknown[i] for i in tokens) for _, tokens in words)


def by_words(
    source: Source, scores: Tensor, *, spaced: bool = False
) -> tuple[Tensor, tuple[Words, Words]]:
    """Scores [target words, source words]: sums over source tokens, means over target tokens."""
    start = source.answer
    if source.decoder is None or start is None or source.by != "token":
        raise UsageError(
            "an alignment needs every token of a source and a target: explain an encoder–decoder "
            "with answer= or generate=, and do not group it"
        )
    if len(scores) != len(source) - start:
        raise UsageError("an alignment needs every token of a target: do not take their total")
    sides = (words_of(source, 0, spaced), words_of(source, 1, spaced))
    columns = [scores[:, tokens].sum(1) for _, tokens in sides[0]]
    if not columns or not sides[1]:
        raise UsageError("the source or the target has no words: give texts that have some")
    by_source = torch.stack(columns, 1)  # [K, source words]
    rows = [by_source[[i - start for i in tokens]].mean(0) for _, tokens in sides[1]]
    return torch.stack(rows), sides


def words_of(source: Source, segment: int, spaced: bool) -> Words:
    """The words of one text that have tokens."""
    if not spaced:
        return [(span, tokens) for span, tokens in source.words(segment) if tokens]
    text = source.texts[segment]
    spans = [match.span() for match in SPACED.finditer(text)]
    places = enumerate(zip(source.owners, source.special.tolist(), strict=True))
    own = {i: source.offsets[i] for i, (at, special) in places if at == segment and not special}
    found = list(zip(spans, members(text, own, spans), strict=True))
    if not all(tokens for _, tokens in found):
        lost = next(text[slice(*span)] for span, tokens in found if not tokens)
        raise UsageError(f"the tokenizer has no token for {lost!r}, so it cannot be aligned")
    return found


def links_of(written: str, what: str = "links") -> frozenset[Link]:
    """Links as tools for alignments write them: pairs of numbers from 0, like 0-0 1-2."""
    links = []
    for pair in written.split():
        left, dash, right = pair.partition("-")
        if not dash or not left.isdecimal() or not right.isdecimal():
            raise UsageError(f"{what}: {pair!r} is no link: write two numbers from 0 on, like 0-2")
        links.append((int(left), int(right)))
    return frozenset(links)


def require_inside(links: Sequence[Link], alignment: Alignment) -> None:
    """Raise for links between words that are not there."""
    for i, j in links:
        if i >= len(alignment.source) or j >= len(alignment.target):
            raise UsageError(
                f"the link {i}-{j} is outside the texts, which have {len(alignment.source)} and "
                f"{len(alignment.target)} words: words stand between spaces, numbers begin at 0"
            )
