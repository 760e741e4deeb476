"""Tables of numbers for papers, files and terminals, and the intervals of the numbers."""

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alti._characters import plain
from alti._errors import UsageError

EMPTY = "–"

_FORMULA = tuple("=+-@\t\r\n")  # spreadsheets evaluate a cell that starts with one of these
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DRAWN_AT_ONCE = 1 << 22  # bootstrap values in memory at a time
_LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        **{character: f"${character}$" for character in "<>"},  # the default font prints ¡ and ¿
        "[": "{[}",  # at the start of a row, [ and * would be options of \\
        "*": "{*}",
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "|": r"\textbar{}",
        "–": "--",
        "−": "$-$",
        "±": r"$\pm$",
        "×": r"$\times$",
        "≤": r"$\leq$",
        "≥": r"$\geq$",
        "↑": r"$\uparrow$",
        "↓": r"$\downarrow$",
        "→": r"$\rightarrow$",
        "Δ": r"$\Delta$",
    }
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A number, possibly with an interval, and whether it is the best; nan is an empty cell.

    >>> Cell(*bootstrap([0.25, 0.5]))
    Cell(value=0.375, low=0.25, high=0.5, best=False)
    """

    value: float
    low: float | None = None
    high: float | None = None
    best: bool = False

    @property
    def interval(self) -> tuple[float, float] | None:
        """The lower and upper end, or None."""
        if self.low is None or self.high is None or math.isnan(self.low) or math.isnan(self.high):
            return None
        return self.low, self.high


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a name and its cells; the first of `columns` is the heading of the names.

    >>> best = Cell(0.28, 0.256, 0.303, best=True)
    >>> table = Table("AUC", ("method", "SST-2"), (("alti", (best,)),))
    >>> print(table.text(), end="")
    AUC
    <BLANKLINE>
    method                  SST-2
    alti    *0.280 [0.256, 0.303]
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | str | None, ...]], ...]
    note: str = ""

    def __post_init__(self) -> None:
        for name, cells in self.rows:
            if len(cells) + 1 != len(self.columns):
                raise UsageError(
                    f"row {name!r} has {len(cells)} cells under the columns "
                    f"{', '.join(self.columns)}: give one cell for each column but the first, "
                    "which is the heading of the names"
                )

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, ready for JSON; nan becomes None."""
        keys = [key_of(column) for column in self.columns[1:]]
        rows = [
            {self.columns[0]: name} | dict(zip(keys, map(_plain, cells), strict=True))
            for name, cells in self.rows
        ]
        return {"title": self.title, "rows": rows, "note": self.note}

    def markdown(self, digits: int = 3) -> str:
        """The table as Markdown; the best in bold."""
        head, *body = ["| " + " | ".join(row) + " |" for row in self._grid(_MARKDOWN, digits)]
        rule = "|" + "|".join("---:" if numeric else "---" for numeric in self._numeric()) + "|"
        title = f"**{_MARKDOWN.escape(self.title)}**" if self.title else ""
        return _paragraphs(title, "\n".join([head, rule, *body]), _MARKDOWN.escape(self.note))

    def latex(self, digits: int = 3) -> str:
        """The table as LaTeX for the package booktabs; the best in bold."""
        head, *body = ["    " + " & ".join(row) + r" \\" for row in self._grid(_TEX, digits)]
        align = "".join("r" if numeric else "l" for numeric in self._numeric())
        lines = [r"\begin{table}", r"  \centering"]
        if self.title:
            lines.append(rf"  \caption{{{_TEX.escape(self.title)}}}")
        lines += [rf"  \begin{{tabular}}{{{align}}}", r"    \toprule", head, r"    \midrule"]
        lines += [*body, r"    \bottomrule", r"  \end{tabular}"]
        if self.note:
            lines.append(rf"  \par\smallskip{{\footnotesize {_TEX.escape(self.note)}}}")
        lines.append(r"\end{table}")
        return "\n".join(lines) + "\n"

    def text(self, digits: int = 3) -> str:
        """The table for a terminal; the best with a star."""
        grid = self._grid(_PLAIN, digits)
        numeric = self._numeric()
        widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
        lines = []
        for row in grid:
            cells = [
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, numeric, strict=True)
            ]
            lines.append("  ".join(cells).rstrip())
        return _paragraphs(_PLAIN.escape(self.title), "\n".join(lines), _PLAIN.escape(self.note))

    def csv(self) -> str:
        """The numbers in full, without title and note; intervals take two more columns."""
        wide = self._columns_with(lambda cell: cell.interval is not None)
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        headings = map(_headings, self.columns[1:], wide)
        writer.writerow([_text(self.columns[0]), *chain.from_iterable(headings)])
        for name, cells in self.rows:
            writer.writerow([_text(name), *chain.from_iterable(map(_numbers, cells, wide))])
        return out.getvalue()

    def _grid(self, style: "_Style", digits: int) -> list[list[str]]:
        """Headings and rows as strings."""
        grid = [[style.escape(name) for name in self.columns]]
        for name, cells in self.rows:
            grid.append([style.escape(name), *(style.cell(cell, digits) for cell in cells)])
        return grid

    def _numeric(self) -> list[bool]:
        """Which columns contain numbers and are aligned right."""
        return [False, *self._columns_with(lambda cell: True)]

    def _columns_with(self, test: Callable[[Cell], bool]) -> list[bool]:
        columns = [[cells[i] for _, cells in self.rows] for i in range(len(self.columns) - 1)]
        return [any(isinstance(cell, Cell) and test(cell) for cell in column) for column in columns]


@dataclass(frozen=True, slots=True)
class _Style:
    """How an output format writes a string, the best number, an interval and a minus sign."""

    escape: Callable[[str], str]
    best: str
    interval: str
    minus: str = "-"

    def cell(self, cell: Cell | str | None, digits: int) -> str:
        if isinstance(cell, str):
            return self.escape(cell)
        if cell is None or math.isnan(cell.value):
            return self.escape(EMPTY)
        shown = self.number(cell.value, digits)
        if cell.best:
            shown = self.best % shown
        if cell.interval:
            shown += self.interval % tuple(self.number(end, digits) for end in cell.interval)
        return shown

    def number(self, value: float, digits: int) -> str:
        return f"{value:z.{digits}f}".replace("-", self.minus)  # z: no negative zero


def _one_line(string: str) -> str:
    return plain(" ".join(string.split()))


_PLAIN = _Style(_one_line, "*%s", " [%s, %s]")
_MARKDOWN = _Style(
    lambda string: re.sub(r"([\\|*`<\[])", r"\\\1", _one_line(string)), "**%s**", " [%s, %s]"
)
_TEX = _Style(
    lambda string: _one_line(string).translate(_LATEX),
    r"\textbf{%s}",
    r"\,{\scriptsize[%s, %s]}",
    minus="$-$",
)


def _paragraphs(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def long_csv(tables: Sequence[Table]) -> str:
    """Several tables in one, with a line for each number."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["table", "row", "column", "value", "low", "high"])
    for table in tables:
        for name, cells in table.rows:
            for column, cell in zip(table.columns[1:], cells, strict=True):
                names = map(_text, (table.title, name, key_of(column)))
                writer.writerow([*names, *_numbers(cell, wide=True)])
    return out.getvalue()


def key_of(column: str) -> str:
    """A heading without arrows and bars, as a key for programs."""
    return re.sub(r" [↑↓]$", "", column).replace(" |·|", " by size")


def _headings(name: str, wide: bool) -> list[str]:
    names = [name, f"{name} low", f"{name} high"] if wide else [name]
    return [_text(name) for name in names]


def _text(cell: str) -> str:
    """A string as a CSV cell: a leading quote keeps spreadsheets from evaluating it."""
    safe = f"'{cell}" if cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell) else cell
    return safe.replace("\r\n", "\n").replace("\r", "\n")  # csv does not quote \r


def _numbers(cell: Cell | str | None, wide: bool) -> list[str]:
    if isinstance(cell, Cell):
        numbers = [cell.value, *(cell.interval or (math.nan, math.nan))]
        kept = numbers if wide else numbers[:1]
        return ["" if math.isnan(number) else repr(float(number)) for number in kept]
    return [_text(cell or ""), *[""] * (2 if wide else 0)]


def _plain(cell: Cell | str | None) -> Any:
    if not isinstance(cell, Cell):
        return cell
    ends = {"low": cell.interval[0], "high": cell.interval[1]} if cell.interval else {}
    return {"value": None if math.isnan(cell.value) else cell.value, **ends, "best": cell.best}


def bootstrap(
    values: ArrayLike, *, draws: int = 2000, seed: int = 0, level: float = 0.95
) -> tuple[float, float, float]:
    """The mean and its interval (low, high), by the percentile bootstrap.

    nan values are ignored. With no values left, all three results are nan; with one, the interval
    is. Its ends are the (1 ∓ level) / 2 quantiles of the means of `draws` samples, each as large as
    the data and drawn from it with replacement (Efron and Tibshirani 1993, chapter 13).
    """
    return mean_of_groups([values], draws=draws, seed=seed, level=level)


def mean_of_groups(
    groups: Iterable[ArrayLike], *, draws: int = 2000, seed: int = 0, level: float = 0.95
) -> tuple[float, float, float]:
    """The mean of the means of groups and its interval: every group counts the same.

    As `bootstrap`, values are drawn anew inside each group. A group without values is left out; the
    interval is nan where every group has but one, which says nothing about the spread.
    """
    if draws < 1 or not 0 < level < 1:
        raise UsageError(
            f"draws={draws}, level={level}: "
            "give 1 draw or more and a level between 0 and 1, like 0.95"
        )
    arrays = [np.asarray(values, dtype=np.float64).ravel() for values in groups]
    real = [data[~np.isnan(data)] for data in arrays]
    real = [data for data in real if data.size]
    if not real:
        return math.nan, math.nan, math.nan
    mean = float(np.mean([data.mean() for data in real]))
    if all(data.size == 1 for data in real):
        return mean, math.nan, math.nan
    generator = np.random.default_rng(seed)
    means = np.mean([_drawn_means(data, draws, generator) for data in real], axis=0)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return mean, float(low), float(high)


def _drawn_means(
    data: NDArray[np.float64], draws: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """The means of samples as large as the data, drawn from it with replacement."""
    means = np.empty(draws)
    step = max(1, _DRAWN_AT_ONCE // data.size)
    for start in range(0, draws, step):
        part = means[start : start + step]
        part[:] = data[generator.integers(data.size, size=(part.size, data.size))].mean(axis=1)
    return means


def paired(
    values: ArrayLike, others: ArrayLike, *, draws: int = 2000, seed: int = 0, level: float = 0.95
) -> tuple[float, float, float]:
    """The mean of values − others and its interval, over the entries that both have."""
    left = np.asarray(values, dtype=np.float64)
    right = np.asarray(others, dtype=np.float64)
    if left.shape != right.shape:
        raise UsageError(
            f"{left.size} values cannot be paired with {right.size}: give nan where one is missing"
        )
    return bootstrap(left - right, draws=draws, seed=seed, level=level)
