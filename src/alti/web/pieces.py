"""A prompt in pieces for the page, and the sections that a long one is folded into."""

import re
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from alti._characters import visible
from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.model.source import Source
from alti.views.said import is_text
from alti.views.segments import passages

CHUNK = 600  # characters of a section where nothing else parts a long text
BEFORE = "beginning"  # what a template puts before the first message or document
FEWEST = 2  # sections that are worth folding
LONGEST = 4000  # characters of a message or document that is one section

Span = tuple[int, int]


def pieces_of(attribution: Attribution, by: str) -> list[dict[str, Any]]:
    """The prompt cut into tokens, words or larger groups, which join to the exact text."""
    if not is_text(attribution.source):
        return _of_groups(attribution)
    pieces = passages(attribution, words=by != "token")[0]
    at = 0
    made = []
    for piece in pieces:
        name = "" if piece.text else "".join(token for token, _ in piece.tokens)
        about = _piece(piece.text, at, piece.score, special=piece.special, name=name)
        made.append(about | ({"unknown": visible(piece.unknown)} if piece.unknown else {}))
        at += len(piece.text)
    return made


def token_names(attribution: Attribution) -> list[str]:
    """The name of each token: its characters in the text, or its own name if it was added."""
    texts = (attribution.text, attribution.text_pair or "")
    owners = attribution.segments or (0,) * len(attribution)
    unknown = attribution.source.unknown or ("",) * len(attribution)
    names = []
    for i, (token, owner, span) in enumerate(
        zip(attribution.tokens, owners, attribution.offsets, strict=True)
    ):
        characters = "" if owner < 0 else texts[owner][slice(*span)]
        shown = shown_as(characters) or token
        names.append(visible(f"{shown} {unknown[i]}".strip()))
    return names


def shown_as(characters: str) -> str:
    """A token's characters without spaces around them, or signs for a token of nothing else."""
    return characters.strip() or ("↵" if "\n" in characters else "␣" * len(characters))


def cut(attribution: Attribution, *, words: bool) -> list[list[dict[str, Any]]]:
    """The texts in pieces, each with the indices of its tokens and its first character."""
    shown = []
    for passage in passages(attribution, words=words):
        starts = accumulate((len(piece.text) for piece in passage), initial=0)
        shown.append(
            [
                {
                    "text": visible(piece.text),
                    "start": start,
                    "places": piece.places,
                    "special": piece.special,
                    "unknown": piece.unknown,
                }
                for piece, start in zip(passage, starts, strict=False)
            ]
        )
    return shown


def by_piece(found: Attributions, by: Any) -> tuple[list[int], Tensor]:
    """Scores [K, T] by the pieces of a prompt: the first character of each, and [K, n]."""
    if by in ("token", "word"):
        pieces = passages(found[0], words=by == "word")[0]
        starts = list(accumulate((len(piece.text) for piece in pieces), initial=0))
        scored = [i for i, piece in enumerate(pieces) if piece.places]
        columns = [found.scores[:, list(pieces[i].places)].sum(1) for i in scored]
        return [starts[i] for i in scored], torch.stack(columns, 1)
    grouped = found.grouped(by)
    own = [i for i, group in enumerate(grouped.source.groups) if group.segment == 0]
    return [grouped.source.groups[i].span[0] for i in own], grouped.scores[:, own]


def _of_groups(attribution: Attribution) -> list[dict[str, Any]]:
    """Sentences, documents or messages, and what is between them."""
    text = attribution.source.texts[0]
    made = []
    at = 0
    rows = zip(attribution.source.groups, attribution.scores.tolist(), strict=True)
    for group, score in rows:
        if group.segment:
            continue
        start, end = group.span
        if start > at:
            made.append(_piece(text[at:start], at, None))
        made.append(_piece(text[start:end], start, score, name=group.name))
        at = end
    if text[at:]:
        made.append(_piece(text[at:], at, None))
    return made


def _piece(
    text: str, start: int, score: float | None, *, special: bool = False, name: str = ""
) -> dict[str, Any]:
    piece: dict[str, Any] = {"text": visible(text), "start": start, "end": start + len(text)}
    if score is not None:
        piece["score"] = score
    if special:
        piece["special"] = True
    if name:
        piece["name"] = visible(name)
    return piece


def sections_of(source: Source, pieces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages, documents, paragraphs or stretches of a prompt: the pieces and score of each.

    A piece belongs to the section that it begins in.
    """
    made = []
    spans = _sections(source)
    for start, end, name in spans:
        inside = [i for i, piece in enumerate(pieces) if start <= piece["start"] < end]
        if not inside:
            continue
        score = sum(pieces[i].get("score", 0.0) for i in inside if not pieces[i].get("special"))
        made.append(
            {"name": visible(name), "first": inside[0], "end": inside[-1] + 1, "score": score}
        )
    return made


def _sections(source: Source) -> list[tuple[int, int, str]]:
    """Where each begins and ends; together they cover the text."""
    text = source.texts[0]
    parts = [part for part in source.parts if part.segment == 0 and part.unit != "message"]
    parts = parts or [part for part in source.parts if part.segment == 0]
    named = sorted((part.span[0], part.name) for part in parts)
    if len(named) < FEWEST:
        named = [(0, "")]
    if named[0][0]:
        named.insert(0, (0, BEFORE))
    ends = [start for start, _ in named[1:]] + [len(text) + 1]
    whole = [(start, end, name) for (start, name), end in zip(named, ends, strict=True)]
    return [stretch for section in whole for stretch in _stretches(text, *section)]


def _stretches(text: str, start: int, end: int, name: str) -> list[tuple[int, int, str]]:
    """A section; or, where it is long or has no name, the stretches of its text."""
    if name and end - start <= LONGEST:
        return [(start, end, name)]
    starts = [start + at for at in _starts(text[start:end])] or [start]
    names = [f"{name}, part {i + 1}" if name and i else name for i in range(len(starts))]
    return list(zip(starts, [*starts[1:], end], names, strict=True))


def _starts(text: str) -> list[int]:
    """Paragraphs; of a long one, stretches of whole sentences or, without these, words."""
    starts = [0]
    for found in re.finditer(r"\n\s*\n\s*|(?<=[.!?。！？])\s+|\s+", text):
        long = found.end() - starts[-1]
        is_paragraph = "\n" in found.group().strip(" ")[:-1]
        is_sentence = found.start() and text[found.start() - 1] in ".!?。！？"
        if is_paragraph or (is_sentence and long > CHUNK) or long > 2 * CHUNK:
            starts.append(found.end())
    return [start for start in starts if start < len(text)]
