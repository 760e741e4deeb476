"""Questions of a data set: rows with documents, with two next words, or with known evidence."""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from alti._errors import LoadError, UsageError
from alti.experiments.data import Skipped
from alti.experiments.formats import listed, rows_of
from alti.model.words import LONE_SURROGATE, Span

Cells = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """How rows become questions."""

    group: str = "sentence"
    generate: int = 16
    distractors: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a model is asked in one row, and what is known about it."""

    number: int  # of the row, from 0, in the whole data or in the chosen split
    text: str  # a question about documents; without documents, a prompt
    documents: tuple[str, ...] = ()
    answer: str | None = None  # None: the model writes it
    generate: int = 16
    group: str = "word"  # what the sources are
    places: tuple[tuple[int, Span], ...] = ()  # of the evidence: a document, and its characters
    rivals: tuple[str, str] | None = None  # the next word, and another one
    word: str | None = None  # the word of the prompt that is evidence
    task: str | None = None  # a part of the data that is shown by itself


def asked(
    source: str, task: str, shape: Shape, *, split: str | None = None
) -> Iterator[Asked | Skipped]:
    """The questions of a data set, one at a time; the first is read at once."""
    questions = _questions(source, task, shape, split)
    first = next(questions, None)  # now, to report a wrong column before any model is loaded
    if first is None:
        raise LoadError(f"{source} has no rows: give a data set that has some")
    return chain([first], questions)


def _questions(
    source: str, task: str, shape: Shape, split: str | None
) -> Iterator[Asked | Skipped]:
    read = None
    for number, row in enumerate(rows_of(source, split)):
        if isinstance(row, str):
            yield Skipped(number, row)
            continue
        read = read or _reader(task, shape, list(row), source)
        try:
            yield read(number, row, shape)
        except ValueError as reason:
            yield Skipped(number, str(reason))


def _reader(
    task: str, shape: Shape, names: list[str], source: str
) -> Callable[[int, Cells, Shape], Asked]:
    """How rows with these columns are read."""
    forms = [form for form in _FORMS[task] if all(set(any_of) & {*names} for any_of in form[0])]
    if not forms:
        expected = " or ".join(_described(form[0]) for form in _FORMS[task])
        raise UsageError(
            f"{source} has no rows for the task {task}: expected the columns {expected}; its "
            f"columns are {listed(names)}"
        )
    if shape.distractors is not None and "gold" not in names:
        raise UsageError(
            f"{source} has no column 'gold', the number of the document that other documents "
            f"(--distractors) are put beside: its columns are {listed(names)}"
        )
    return forms[0][1]


def _described(columns: tuple[tuple[str, ...], ...]) -> str:
    return ", ".join("/".join(names) for names in columns)


def _answer_row(number: int, row: Cells, shape: Shape) -> Asked:
    documents = _documents(row)
    if shape.distractors is not None:
        documents = _drawn(documents, row, shape.distractors, f"{shape.seed} {number}")
    answer = row.get("answer")
    return Asked(
        number,
        _text(row, "question" if "question" in row else "prompt"),
        tuple(documents),
        answer=None if answer in (None, "") else _text(row, "answer"),
        generate=shape.generate,
        group=shape.group,
    )


def _next_row(number: int, row: Cells, shape: Shape) -> Asked:
    task = row.get("task")
    return Asked(
        number,
        _text(row, "prompt"),
        rivals=(_text(row, "good"), _text(row, "bad")),
        word=_text(row, "evidence"),
        task=None if task in (None, "") else str(task),
    )


def _passage_row(number: int, row: Cells, shape: Shape) -> Asked:
    context = _text(row, "context")
    answer = _text(row, "answer")
    start = _number(row, "answer_start")
    if start < 0 or context[start : start + len(answer)] != answer:
        raise ValueError("the answer does not stand at its answer_start in the context")
    start -= len(context) - len(context.lstrip())  # templates of chats strip, too
    return Asked(
        number,
        _text(row, "question"),
        (context.strip(),),
        answer=answer,
        group=shape.group,
        places=((0, (start, start + len(answer))),),
    )


def _record_row(number: int, row: Cells, shape: Shape) -> Asked:
    """A line for each record; the one with the key is evidence for its value."""
    key = _text(row, "key")
    place = None
    lines: list[str] = []
    for record in _list(row, "records", dict):
        line = f'"{_text(record, "key")}": "{_text(record, "value")}"'
        start = sum(len(line) + 1 for line in lines)
        place = (start, start + len(line)) if record["key"] == key else place
        lines.append(line)
    if place is None:
        raise ValueError("no record has the key")
    question = f'What is the value of "{key}"?'
    return Asked(
        number,
        question,
        ("\n".join(lines),),
        answer=_text(row, "value"),
        group="line",
        places=((0, place),),
    )


def _marked_row(number: int, row: Cells, shape: Shape) -> Asked:
    """The evidence is said in the words of the documents, wherever these stand."""
    asked = _answer_row(number, row, shape)
    documents = tuple(document.strip() for document in asked.documents)  # as templates do
    marked = row.get("evidence")
    texts = [marked] if isinstance(marked, str) else _list(row, "evidence", str)
    places = [place for text in texts for place in _standing(text.strip(), documents)]
    return replace(asked, documents=documents, places=tuple(places))


def _standing(text: str, documents: tuple[str, ...]) -> list[tuple[int, Span]]:
    """Every place where a text stands: the number of the document, and the characters there."""
    found = [
        (number, match.span())
        for number, document in enumerate(documents)
        for match in re.finditer(re.escape(text), document)
    ]
    if not text or not found:
        raise ValueError(f"its evidence {text!r:.50} stands in no document")
    return found


_FORMS: dict[str, list[tuple[tuple[tuple[str, ...], ...], Callable[[int, Cells, Shape], Asked]]]]
_FORMS = {
    "answer": [((("question", "prompt"), ("documents", "context")), _answer_row)],
    "next": [((("prompt",), ("good",), ("bad",), ("evidence",)), _next_row)],
    "evidence": [
        ((("question", "prompt"), ("documents", "context"), ("evidence",)), _marked_row),
        ((("context",), ("question",), ("answer",), ("answer_start",)), _passage_row),
        ((("records",), ("key",), ("value",)), _record_row),
    ],
}


def _documents(row: Cells) -> list[str]:
    if "documents" not in row:
        return [_text(row, "context")]
    documents = _list(row, "documents", str)
    if not all(document.strip() for document in documents):
        raise ValueError("a document is empty")
    return documents


def _drawn(documents: list[str], row: Cells, count: int, seed: str) -> list[str]:
    """The gold document and some others, shuffled."""
    gold = _number(row, "gold")
    if not 0 <= gold < len(documents):
        raise ValueError(f"gold is {gold}, and there are {len(documents)} documents")
    others = [document for i, document in enumerate(documents) if i != gold]
    if len(others) < count:
        raise ValueError(f"there are {len(others)} documents beside the gold one, not {count}")
    draw = random.Random(seed)
    chosen = [documents[gold], *draw.sample(others, count)]
    draw.shuffle(chosen)
    return chosen


def _text(row: Cells, name: str) -> str:
    cell = row.get(name)
    if not isinstance(cell, str):
        problem = "is missing" if cell is None else f"is not a string but {cell!r:.50}"
        raise ValueError(f"{name} {problem}")
    if not cell.strip():
        raise ValueError(f"{name} is empty")
    if LONE_SURROGATE.search(cell):
        raise ValueError(f"{name} has a lone surrogate")
    return cell


def _list(row: Cells, name: str, kind: type) -> list[Any]:
    cell = row.get(name)
    if not isinstance(cell, list) or not cell or not all(isinstance(x, kind) for x in cell):
        what = "texts" if kind is str else "keys and values"
        raise ValueError(f"{name} is not a list of {what} but {cell!r:.50}")
    return cell


def _number(row: Cells, name: str) -> int:
    """A whole number, however the format spells it."""
    cell = row.get(name)
    if isinstance(cell, str) and cell.removeprefix("-").isdecimal():
        return int(cell)
    if isinstance(cell, bool) or not isinstance(cell, int):
        raise ValueError(f"{name} is not a whole number but {cell!r:.50}")
    return cell
