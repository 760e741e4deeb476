"""What words of a transcript rest on in a sound: scores over seconds, in every kind of view."""

import base64
import hashlib
from dataclasses import dataclass
from html import escape

import torch
from torch import Tensor

from alti._characters import plain
from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.views.latex import escaped
from alti.views.said import method_of, scale_name, side_of, unnamed

WINDOWS = 60  # parts that a sound is shown in, at most
BARS = " ▁▂▃▄▅▆▇█"
SHADES = " ░▒▓"  # of what speaks against a token
CELL = 12  # pixels of a window on a page
ROW = 24
SIDE = 120
STYLE = """
body { margin: 2rem auto; padding: 0 1rem; max-width: 72rem; font: 15px/1.5 system-ui, sans-serif;
  color: #1f2328; background: #fff; } h1 { font-size: 1.1rem; }
text { font: 13px ui-monospace, monospace; fill: currentColor; }
.cell { fill: #2563c9; } .against { fill: #c2500a; }
@media (prefers-color-scheme: dark) { body { color: #e6edf3; background: #0d1117; }
  .cell { fill: #79b0ff; } .against { fill: #ff9d5c; } }
"""

Shown = Attribution | Attributions


@dataclass(frozen=True, slots=True)
class Heard:
    """Scores by window of time, for each token that was written."""

    names: list[str]
    scores: Tensor  # [K, windows]
    seconds: float  # that a window lasts
    by: str  # method, model, and what the scores are

    @property
    def signed(self) -> bool:
        return bool((self.scores < 0).any())

    @property
    def scale(self) -> str:
        """What a colour or a bar is relative to."""
        return f"each row relative to its largest window of {self.seconds:.2f} s"

    def shares(self) -> list[list[float]]:
        """Relative to the largest of each row, between −1 and 1."""
        largest = self.scores.abs().amax(1, keepdim=True).clamp_min(1e-30)
        shown: list[list[float]] = (self.scores / largest).tolist()
        return shown

    def best(self) -> list[str]:
        """The window with most of each row."""
        starts = [self.seconds * i for i in self.scores.argmax(1).tolist()]
        return [f"{start:.2f}–{start + self.seconds:.2f} s" for start in starts]


def heard(result: Shown) -> Heard:
    """The frames of a sound in at most 60 windows of equal length."""
    source = result.source
    rows = result.scores if result.scores.dim() == 2 else result.scores[None]
    if isinstance(result, Attributions):
        names = [one.label or "" for one in result.predictions]
    else:
        names = [result.label or ""]
    frames = int((~source.special[: source.decoder]).sum()) or 1
    size = -(-frames // WINDOWS)
    padded = torch.nn.functional.pad(rows[:, :frames], (0, -frames % size))
    windows = padded.reshape(len(rows), -1, size).sum(-1)
    return Heard(names, windows, size * (source.seconds or 0), _by(result))


def _by(result: Shown) -> str:
    first = result[0] if isinstance(result, Attributions) else result
    unit = unnamed(scale_name(first), side_of(first))
    return " · ".join(filter(None, (method_of(first), result.model, unit)))


def render(result: Shown) -> str:
    """A line for each token: a bar for each window of time, and the seconds of its largest."""
    view = heard(result)
    side = max(map(len, view.names))
    length = view.seconds * view.scores.shape[1]
    lines = [view.by]
    for name, row, best in zip(view.names, view.shares(), view.best(), strict=True):
        lines.append(f"  {name.strip().ljust(side)} {''.join(map(_bar, row))} {best}")
    lines.append(f"  {' ' * side} 0 s {' ' * max(0, view.scores.shape[1] - 10)}{length:.1f} s")
    lines.append(f"  {view.scale}{'; ░▒▓ against the token' if view.signed else ''}")
    return "\n".join(map(plain, lines))


def _bar(share: float) -> str:
    letters = BARS if share >= 0 else SHADES
    return letters[round(abs(share) * (len(letters) - 1))]


def page(result: Shown) -> str:
    """A page of its own, light and dark: tokens × seconds."""
    view = heard(result)
    parts = []
    for j, (name, row) in enumerate(zip(view.names, view.shares(), strict=True)):
        parts.append(f'<text x="0" y="{ROW * j + 16}">{escape(name.strip())}</text>')
        parts += [_square(i, j, share) for i, share in enumerate(row)]
    below = ROW * len(view.names)
    for i in range(0, view.scores.shape[1], 10):
        place = f'x="{SIDE + CELL * i}" y="{below + 18}"'
        parts.append(f"<text {place}>{view.seconds * i:.1f} s</text>")
    width = SIDE + CELL * view.scores.shape[1] + 40
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'"
    title = f"What was heard · {view.by}"
    against = "; orange speaks against the token" if view.signed else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="color-scheme" content="light dark"><title>{escape(title)}</title>
<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>
<svg width="{width}" height="{below + 30}" role="img">{"".join(parts)}</svg>
<p>{view.scale.capitalize()}{against}.</p></body></html>
"""


def _square(i: int, j: int, share: float) -> str:
    place = f'x="{SIDE + CELL * i}" y="{ROW * j}" width="{CELL}" height="{ROW - 3}"'
    name = "cell against" if share < 0 else "cell"
    return f'<rect class="{name}" {place} fill-opacity="{0.04 + 0.9 * abs(share):.2f}"/>'


def table(result: Shown) -> str:
    """Each token and the seconds that it rests most on, as LaTeX."""
    view = heard(result)
    about = rf"\multicolumn{{3}}{{l}}{{{escaped(view.by)}}} \\"
    head = r"token & rests most on & its score \\ \hline"
    lines = [r"\begin{tabular}{lrr}", about, head]
    for name, best, row in zip(view.names, view.best(), view.scores, strict=True):
        score = f"{float(row.max()):.3f}"
        lines.append(f"{escaped(name.strip())} & {escaped(best)} & {escaped(score)} " + r"\\")
    return "\n".join([*lines, r"\end{tabular}"]) + "\n"


def document(result: Shown) -> str:
    return (
        "\\documentclass{article}\n\\usepackage[T1]{fontenc}\n\\begin{document}\n"
        f"{table(result)}\\end{{document}}\n"
    )
