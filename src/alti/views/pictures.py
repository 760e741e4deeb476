"""An image with the scores of its patches: in a terminal, in HTML, as a picture."""

import base64
import io
from html import escape
from typing import Any

from alti.views.colours import LIGHT, STEPS, Scale, paint, rgb
from alti.views.said import scale_name

SHADES = " ░▒▓█"
STRONGEST = 0.75  # of the colour over the picture

STYLE = """
.alti-image { font: 14px/1.5 system-ui, sans-serif; padding: 1em; color: #262626 }
.alti-image figure { display: inline-block; margin: 0 1em 0 0 }
.alti-image img { image-rendering: pixelated; width: 336px; display: block }
.alti-image figcaption { color: #666; font-size: 12px }
@media (prefers-color-scheme: dark) {
  .alti-image { color: #e6e6e6; background: #1b1b1b }
  .alti-image figcaption { color: #a6a6a6 }
}
"""


def overlay(attribution: Any, *, width: int = 448) -> Any:
    """The picture in grey under the colours of the scores: blue for the label, orange against."""
    from PIL import Image

    height = round(width * attribution.image.height / attribution.image.width)
    grey = faded(attribution.image).resize((width, height), Image.Resampling.NEAREST)
    rows, columns = attribution.scores.shape
    colours = Image.new("RGB", (columns, rows))
    strength = Image.new("L", (columns, rows))
    scale = Scale.of(attribution.scores.flatten().tolist())
    for (row, column), score in attribution:
        level = scale.level(score)
        strongest = STEPS if level >= 0 else -STEPS
        colours.putpixel((column, row), rgb(paint(strongest, LIGHT).background))
        strength.putpixel((column, row), round(255 * STRONGEST * abs(level) / STEPS))
    size = (width, height)
    tint = colours.resize(size, Image.Resampling.NEAREST)
    return Image.composite(tint, grey, strength.resize(size, Image.Resampling.NEAREST))


def faded(image: Any) -> Any:
    """A picture in grey, neither black nor white, on which one could not see a colour."""
    grey = image.convert("L").point([round(70 + 0.6 * level) for level in range(256)])
    return grey.convert("RGB")


def caption(attribution: Any) -> str:
    """What a view says about a result."""
    chance = attribution.probability
    said = attribution.label or ""
    said += "" if chance is None else f" (p = {chance:.3f})"
    return " · ".join(filter(None, (said, attribution.method, attribution.model)))


def scale_of(attribution: Any) -> str:
    """The ends of the scale, and what its numbers are of."""
    scale = Scale.of(attribution.scores.flatten().tolist())
    low = scale.number(-scale.largest) if scale.signed else "0"
    return f"{low} to {scale.number(scale.largest)} {scale_name(attribution)}".strip()


def fragment(attribution: Any) -> str:
    """The picture and the overlay side by side, for a page of one's own."""
    rows, columns = attribution.scores.shape
    scale = Scale.of(attribution.scores.flatten().tolist())
    best = ", ".join(
        f"row {row + 1}, column {column + 1}: {scale.number(score)}"
        for (row, column), score in attribution.top(3)
    )
    colours = "blue: for it; orange: against it" if scale.signed else "the bluer, the more"
    said = f"{rows} × {columns} patches; {colours}; {scale_of(attribution)}"
    return (
        f'<style>{STYLE}</style><div class="alti-image"><p>{escape(caption(attribution))}</p>'
        f"{_figure(attribution.image, 'what the model saw')}"
        f"{_figure(overlay(attribution), said)}"
        f"<p>{escape(best)}</p></div>"
    )


def page(attribution: Any) -> str:
    title = escape(caption(attribution))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        "<style>:root { color-scheme: light dark } body { margin: 0 }</style>"
        f"<body>{fragment(attribution)}</body></html>"
    )


def _figure(image: Any, said: str) -> str:
    out = io.BytesIO()
    image.save(out, format="PNG")
    data = base64.b64encode(out.getvalue()).decode()
    alternative = escape(said, quote=True)
    return (
        f'<figure><img alt="{alternative}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(said)}</figcaption></figure>"
    )


def render(attribution: Any) -> str:
    """A character twice for each patch, as dark as its score; − before those that speak against."""
    scale = Scale.of(attribution.scores.flatten().tolist())
    lines = [caption(attribution)]
    for row in attribution.scores.tolist():
        lines.append("  " + "".join(_cell(scale.share(score)) for score in row))
    lines.append(f"  {scale_of(attribution)}")
    lines.append(f"  special tokens {float(attribution.special.sum()):.3f}")
    return "\n".join(lines)


def _cell(share: float) -> str:
    shade = SHADES[round(abs(share) * (len(SHADES) - 1))]
    return f"−{shade}" if share < 0 and shade != " " else 2 * shade
