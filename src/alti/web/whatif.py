"""Answers requests about a text without a word, or with another one."""

from typing import Any

from alti._characters import visible
from alti._errors import UsageError
from alti.experiments.bench import parsed
from alti.experiments.what_if import instead, what_if
from alti.methods import METHODS
from alti.model.assembly import source_of
from alti.model.model import Model
from alti.model.question import Question, read_prompt
from alti.model.source import Source
from alti.views.said import scale_name, shortened, side_of, unnamed
from alti.web.options import checked
from alti.web.packing import as_json
from alti.web.settings import Limits

MOST = 512  # words or other groups that are measured for one request
NAME = 80  # characters of a group


class WhatIfDesk:
    """The part of the desk that changes texts and runs the model again."""

    limits: Limits

    def reader(self, question: dict[str, Any]) -> Model:
        raise NotImplementedError  # the requested model, if the text is not too long for it

    def whatif(self, question: dict[str, Any]) -> bytes:
        """The probability without one or every word, or with another, beside a method's scores."""
        model = self.reader(question)
        text = question["text"] if question["chat"] is None else question["chat"]
        given = {"text": text, "documents": question["documents"]}
        source = _grouped(model, question, given)
        names = ("target", "position", "answer", "answer_ids", "part")
        said = {name: question[name] for name in names} | {"documents": question["documents"]}
        texts = (text, question["text_pair"])
        if question["instead"] is not None:
            return as_json(_instead(model, question, source, texts, said))
        if question["at"] is None and len(source) > MOST:
            by = question["by"]
            raise UsageError(
                f"the text has {len(source)} {by}s, and {MOST} can be measured at once: choose "
                "larger parts, or click one of them"
            )
        return as_json(_without(model, question, texts, said))


def _grouped(model: Model, question: dict[str, Any], given: dict[str, Any]) -> Source:
    asked = Question(**given, text_pair=question["text_pair"])
    source, _ = source_of(read_prompt(asked, model.encoder)).sources(question["by"])
    return source


def _place(question: dict[str, Any]) -> tuple[int, int]:
    at = question["at"]
    if at is None or len(at) != 2:
        raise UsageError("it is not said which word: send at = [text, character]")
    return at[0], at[1]


def _instead(
    model: Model,
    question: dict[str, Any],
    source: Source,
    texts: tuple[Any, str | None],
    said: dict[str, Any],
) -> dict[str, Any]:
    place = _place(question)
    group = source.groups[source.group_at(place)]
    name = source.texts[group.segment][slice(*group.span)]
    new = question["instead"]
    change = instead(model, *texts, at=place, new=new, groups=question["by"], **said)
    return {
        "label": _short(change.label),
        "before": change.before,
        "after": [change.after],
        "names": [_short(name)],
        "instead": _short(new),
    }


def _without(
    model: Model, question: dict[str, Any], texts: tuple[Any, str | None], said: dict[str, Any]
) -> dict[str, Any]:
    method, options = parsed(question["method"])
    only = None if question["at"] is None else _place(question)
    found = what_if(
        model,
        *texts,
        method=method,
        groups=question["by"],
        only=only,
        options=checked(method, options),
        **said,
    )
    predicted = found.predicted
    return {
        "label": _short(found.measured.label or ""),
        "before": found.before,
        "after": found.after.tolist(),
        "fall": found.measured.scores.tolist(),
        "names": [_short(name) for name in found.measured.tokens],
        "unknown": _unknown(found.measured.source, question["by"]),
        "places": [[group.segment, *group.span] for group in found.measured.source.groups],
        "predicted": predicted.scores.tolist(),
        "correlation": found.rank_correlation,
        "method": question["method"],
        "unit": unnamed(scale_name(predicted), side_of(predicted)),
        "falls": METHODS[method].class_specific and METHODS[method].is_signed(options),
    }


def _unknown(source: Source, by: str) -> list[str]:
    """For each word "", or what the model read for it because it does not know it."""
    marks = source.unknown if by == "word" else ()
    return [visible(mark) for mark in marks] or [""] * len(source)


def _short(text: str) -> str:
    return visible(shortened(text, NAME)) or "␣"
