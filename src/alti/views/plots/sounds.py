"""A plot of what a transcript rests on in a sound."""

from typing import Any

from matplotlib.axes import Axes

from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.views.plots.look import (
    INK,
    LONGEST_NAME,
    WATER,
    array,
    axes,
    bare,
    inches,
    literal,
    name,
    title,
)
from alti.views.sounds import heard


def sound(result: Attribution | Attributions, *, ax: Axes | None = None) -> Axes:
    """Tokens (rows) × seconds, blue for a token and red against it."""
    view = heard(result)
    values = array(view.shares())
    names = [each.strip() for each in view.names]
    length = view.seconds * values.shape[1]
    height = max(0.8, 0.26 * len(names))
    ax, size = axes(ax, 6.0, height, beside=inches(names) + 0.3, below=0.4)
    edges = (0.0, length, len(names) - 0.5, -0.5)
    colours: dict[str, Any] = (
        {"cmap": "RdBu", "vmin": -1} if view.signed else {"cmap": WATER, "vmin": 0}
    )
    ax.imshow(values, vmax=1, aspect="auto", extent=edges, **colours)
    bare(ax)
    name(ax.yaxis, names, size[1])
    ax.tick_params(axis="x", length=3, labelsize=8, labelcolor=INK)
    ax.set_xlabel("seconds", fontsize=8.5, color=INK)
    against = " (red against the token)" if view.signed else ""
    title(ax, f"What was heard: {literal(view.by, LONGEST_NAME)}", f"{view.scale}{against}")
    return ax
