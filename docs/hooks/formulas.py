"""Formulas: what is written as y_i and C^l becomes subscripts and superscripts on the site.

The documents are plain text, for readers of the repository too. On the pages that are named here
an underscore or a caret behind a symbol is typeset; blocks of formulas lose their frame of code.
Nothing is loaded for it.
"""

import re
from html import escape

from mkdocs.structure.pages import Page

PAGES = ("theory.md", "performance.md")
BLOCK = re.compile(r"(?:^ {4}.*\n|^\n(?= {4}))+", re.MULTILINE)
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
SYMBOL = r"(</sup>|\]|(?<![\w\\])(?:∂\w|bias|mean|residual|scale|score|FFN|\w′?|[Σ∫‖]))"
INDEX = re.compile(SYMBOL + r"_(\w\(\w\)|\{[^}]+\}|[A-Za-z<]{1,4}|\d)(?!\w)")
POWER = re.compile(r"(\w)\^(\([^)]+\)|\{[^}]+\}|[A-Za-z\d])")
DRAWN = "┌└│"  # matrices: they need the columns of a typewriter


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    if page.file.src_uri not in PAGES:
        return markdown
    parts = CODE.split(BLOCK.sub(_block, markdown))
    return "".join(part if i % 2 else typeset(part) for i, part in enumerate(parts))


def _block(match: re.Match[str]) -> str:
    """A block of formulas, line by line; matrices stay as they are."""
    lines = re.sub(r"^ {4}", "", match[0], flags=re.MULTILINE).strip("\n")
    if any(line in lines for line in DRAWN):
        return f"```text\n{lines}\n```\n\n"
    return f'<div class="formula" markdown="0">{typeset(escape(lines))}</div>\n\n'


def typeset(text: str) -> str:
    """`T_ij` as T with the subscript ij, `C^l` as C with the superscript l."""
    text = POWER.sub(lambda match: f"{match[1]}<sup>{match[2].strip('(){}')}</sup>", text)
    return INDEX.sub(lambda match: f"{match[1]}<sub>{_inside(match[2])}</sub>", text)


def _inside(index: str) -> str:
    return index.strip("{}").replace("<", "&lt;")
