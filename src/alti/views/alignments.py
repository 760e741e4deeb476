"""A source and its target side by side, the matrix target × source, and alignments as lines.

For a terminal, as a web page and as LaTeX; `alti.views.plots.alignments` draws the same.
"""

import base64
import hashlib
from html import escape

from alti._characters import plain
from alti.model.alignment import Alignment
from alti.views.latex import escaped

SHADES = " ·░▒▓█"
WIDEST = 110  # columns of a terminal that a matrix may take
CUT = 14  # letters of a word at the side of a matrix
ROOM = 8.6  # pixels that a letter of the page takes
GAP = 18  # pixels between words
HIGH = 110  # pixels between source and target
CELL = 24  # pixels of a cell
DOT = r"$\bullet$"
STYLE = """
body { margin: 2rem auto; padding: 0 1rem; max-width: 72rem; font: 15px/1.5 system-ui, sans-serif;
  color: #1f2328; background: #fff; }
h1 { font-size: 1.1rem; } figure { margin: 1.5rem 0; overflow-x: auto; }
figcaption { color: #656d76; font-size: .85rem; }
svg { display: block; } text { font: 14px ui-monospace, monospace; fill: currentColor; }
.link { stroke: #2563c9; stroke-width: 2; } .cell { fill: #2563c9; }
.linked { fill: none; stroke: currentColor; stroke-width: 1.2; }
@media (prefers-color-scheme: dark) { body { color: #e6edf3; background: #0d1117; }
  .link { stroke: #79b0ff; } .cell { fill: #79b0ff; } figcaption { color: #8d96a0; } }
"""


def shares(alignment: Alignment) -> list[list[float]]:
    """Scores of each target word relative to its best source word, none below 0."""
    rows = alignment.scores.clamp_min(0)
    best = rows.amax(1, keepdim=True).clamp_min(1e-30)
    shown: list[list[float]] = (rows / best).tolist()
    return shown


def sources_of(alignment: Alignment, target: int) -> list[int]:
    """The source words that a target word is linked to."""
    return [i for i, j in alignment.links if j == target]


# Terminal


def render(alignment: Alignment) -> str:
    """Each target word beside its source words, then the matrix, where it fits."""
    lefts = [
        " ".join(alignment.names[0][i] for i in sources_of(alignment, j)) or "–"
        for j in range(len(alignment.names[1]))
    ]
    wide = max(map(len, lefts))
    lines = [" · ".join(filter(None, ("source → target", alignment.by)))]
    for left, word in zip(lefts, alignment.names[1], strict=True):
        lines.append(f"  {left} {'─' * (wide - len(left) + 2)} {word}")
    return "\n".join(map(plain, [*lines, "", *_matrix(alignment)]))


def _matrix(alignment: Alignment) -> list[str]:
    """Rows of shades; links in brackets."""
    side = max(min(len(word), CUT) for word in alignment.names[1])
    heads = [word[: CUT - 6] for word in alignment.names[0]]
    widths = [max(3, len(word)) for word in heads]
    if side + sum(widths) + 2 * len(widths) > WIDEST:
        return ["(the matrix is wider than the terminal: see to_html)"]
    lines = [
        "  each row relative to its best; [ ] is a link",
        " " * (side + 3)
        + " ".join(head.center(wide) for head, wide in zip(heads, widths, strict=True)),
    ]
    for j, (word, row) in enumerate(zip(alignment.names[1], shares(alignment), strict=True)):
        linked = sources_of(alignment, j)
        cells = [_cell(share, i in linked).center(widths[i]) for i, share in enumerate(row)]
        lines.append(f"  {word[:CUT].ljust(side)} {' '.join(cells)}".rstrip())
    return lines


def _cell(share: float, linked: bool) -> str:
    shade = SHADES[min(len(SHADES) - 1, int(share * len(SHADES)))]
    return f"[{shade}]" if linked else f" {shade} "


# Web page


def page(alignment: Alignment, title: str = "Word alignment") -> str:
    """A page of its own, light and dark, without scripts."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{escape(title)}</title>
<style>{STYLE}</style></head>
<body><h1>{escape(title)}</h1>
<p>{escape(alignment.by)}</p>
<figure>{lines_svg(alignment)}
<figcaption>Source above, target below; a line is a link, stronger where its score is.
</figcaption></figure>
<figure>{matrix_svg(alignment)}
<figcaption>Rows: target words; columns: source words; each row relative to its best. Frames are
links.</figcaption></figure>
</body></html>
"""


def lines_svg(alignment: Alignment) -> str:
    """The source above the target, links between them."""
    rows = alignment.names
    centres = [_centres(words) for words in rows]
    width = max(edges[-1][1] for edges in centres)
    strengths = shares(alignment)
    parts = []
    for i, j in alignment.links:
        start, end = centres[0][i][0], centres[1][j][0]
        parts.append(
            f'<line class="link" x1="{start:.0f}" y1="26" x2="{end:.0f}" y2="{HIGH - 6}" '
            f'stroke-opacity="{0.25 + 0.75 * strengths[j][i]:.2f}"/>'
        )
    for words, edges, y in zip(rows, centres, (18, HIGH + 10), strict=True):
        parts += [_text(word, middle, y) for word, (middle, _) in zip(words, edges, strict=True)]
    return _svg(width, HIGH + 20, parts)


def _centres(words: tuple[str, ...]) -> list[tuple[float, float]]:
    """The middle and the end of each word on a line."""
    places, at = [], 4.0
    for word in words:
        wide = ROOM * len(word)
        places.append((at + wide / 2, at + wide))
        at += wide + GAP
    return places


def matrix_svg(alignment: Alignment) -> str:
    """Target words × source words."""
    side = ROOM * max(map(len, alignment.names[1])) + 10
    above = ROOM * max(map(len, alignment.names[0])) + 10
    parts = []
    for i, word in enumerate(alignment.names[0]):
        x = side + CELL * (i + 0.65)
        parts.append(
            f'<text x="{x:.0f}" y="{above - 6:.0f}" transform="rotate(-90 {x:.0f} '
            f'{above - 6:.0f})">{escape(word)}</text>'
        )
    for j, row in enumerate(shares(alignment)):
        y = above + CELL * j
        parts.append(f'<text x="0" y="{y + 17:.0f}">{escape(alignment.names[1][j])}</text>')
        for i, share in enumerate(row):
            parts += _square(side + CELL * i, y, share, (i, j) in alignment.links)
    across = side + CELL * len(alignment.names[0]) + 4
    return _svg(across, above + CELL * len(alignment.names[1]) + 4, parts)


def _square(x: float, y: float, share: float, linked: bool) -> list[str]:
    place = f'x="{x + 1:.0f}" y="{y + 1:.0f}" width="{CELL - 2}" height="{CELL - 2}"'
    cell = f'<rect class="cell" {place} fill-opacity="{0.04 + 0.9 * share:.2f}"/>'
    return [cell, f'<rect class="linked" {place}/>'] if linked else [cell]


def _text(word: str, x: float, y: float) -> str:
    return f'<text x="{x:.0f}" y="{y}" text-anchor="middle">{escape(word)}</text>'


def _svg(width: float, height: float, parts: list[str]) -> str:
    size = f'width="{width + 6:.0f}" height="{height:.0f}"'
    return f'<svg {size} role="img">{"".join(parts)}</svg>'


# LaTeX


def picture(alignment: Alignment) -> str:
    """Lines between source and target, for the package tikz."""
    parts = [r"\begin{tikzpicture}[every node/.style={anchor=base, inner sep=2pt}]"]
    for side, (words, y) in enumerate(zip(alignment.names, (0, -1.6), strict=True)):
        at = f"(0,{y})"
        for number, word in enumerate(words):
            own = f"s{side}x{number}"
            parts.append(rf"  \node ({own}) at {at} {{\strut {escaped(word)}}};")
            at = rf"($({own}.base east)+(6pt,0)$)"
            parts[-1] = parts[-1].replace(r"\node", r"\node[anchor=base west]")
    strengths = shares(alignment)
    for i, j in alignment.links:
        shade = round(25 + 75 * strengths[j][i])
        parts.append(rf"  \draw[blue!{shade}] (s0x{i}.south) -- (s1x{j}.north);")
    return "\n".join([*parts, r"\end{tikzpicture}"]) + "\n"


def table(alignment: Alignment) -> str:
    """The matrix, for the packages array, rotating and xcolor with the option table."""
    columns = "".join("c" for _ in alignment.names[0])
    heads = [rf"\rotatebox{{90}}{{{escaped(word)}}}" for word in alignment.names[0]]
    lines = [rf"\begin{{tabular}}{{r{columns}}}", " & ".join(["", *heads]) + r" \\"]
    for j, row in enumerate(shares(alignment)):
        linked = sources_of(alignment, j)
        cells = [
            rf"\cellcolor{{blue!{round(70 * share)}}}" + (DOT if i in linked else "")
            for i, share in enumerate(row)
        ]
        lines.append(" & ".join([escaped(alignment.names[1][j]), *cells]) + r" \\")
    return "\n".join([*lines, r"\end{tabular}"]) + "\n"


def document(alignment: Alignment) -> str:
    """Both in a document that compiles on its own."""
    return (
        "\\documentclass{article}\n\\usepackage[T1]{fontenc}\n\\usepackage[table]{xcolor}\n"
        "\\usepackage{rotating}\n\\usepackage{tikz}\n\\usetikzlibrary{calc}\n"
        "\\providecommand{\\alticode}[1]{U+#1}\n\\providecommand{\\altiglyph}[3]{\\alticode{#2}}\n"
        "\\pagestyle{empty}\n\\begin{document}\n"
        f"\\noindent {escaped(alignment.by)}: lines are links; each row of the matrix is relative "
        f"to its best, dots are links.\n\n\\bigskip\n{picture(alignment)}\n\\bigskip\n\n"
        f"{table(alignment)}\\end{{document}}\n"
    )
