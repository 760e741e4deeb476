"""Examples in docstrings: lines behind >>> become code on the page of the API."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^\.\.\. .*\n?|^(?!>>>)\S.*\n?)*)+", re.MULTILINE)


class Examples(griffe.Extension):
    """Puts the examples of every docstring into fences."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(match: re.Match[str]) -> str:
    return f"```pycon\n{match[0].rstrip()}\n```\n"
