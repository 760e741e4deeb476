"""What IPython and notebooks show of a result inside of something else, such as a list."""

from collections.abc import Sequence
from typing import Any

from alti._characters import plain
from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.views.cards import MOST, table
from alti.views.said import (
    as_shown,
    by_words,
    chance_of,
    label_of,
    method_of,
    shortened,
    strongest,
    whole_answer,
)

TEXT = 40  # characters of a text in a line


def line(result: Attribution | Attributions) -> str:
    """A result on one line: its text, its prediction and what this rests on most."""
    text = shortened(" / ".join(result.source.texts), TEXT)
    return plain(f"<{type(result).__name__} {text!r}: {_said(result)}>")


def _said(result: Attribution | Attributions) -> str:
    if isinstance(result, Attributions) and result.source.answer is None:
        count = len(result)
        return f"{count} prediction{'' if count == 1 else 's'} · {result.method}"
    one = as_shown(result) if isinstance(result, Attribution) else whole_answer(result)
    chance = chance_of(one)
    head = " ".join(filter(None, (label_of(one), f"({chance})" if chance else "")))
    best = ", ".join(f"{each.name} {each.score:.3g}" for each in strongest(by_words(one), MOST))
    by = f"{method_of(one)}: {best or 'nothing'}"
    return f"{head} · {by}" if head else by


def show_lists(shell: Any) -> None:
    """Let a notebook show a list or tuple of results as a table; any other one as before."""
    formatter = shell.display_formatter.formatters["text/html"]
    for kind in (list, tuple):
        formatter.for_type(kind, _table_of)


def _table_of(listed: Sequence[Any]) -> str | None:
    if not listed or not all(isinstance(one, Attribution | Attributions) for one in listed):
        return None
    return str(table(listed))
