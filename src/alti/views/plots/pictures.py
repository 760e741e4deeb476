"""A plot of an image and the scores of its patches."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize

from alti.views.colours import LIGHT, STEPS, Scale, paint
from alti.views.pictures import caption, overlay
from alti.views.plots.look import LONGEST_NAME, Picture, literal
from alti.views.said import scale_name

FOR = paint(STEPS, LIGHT).background
AGAINST = paint(-STEPS, LIGHT).background
SIGNED = LinearSegmentedColormap.from_list("signed", [AGAINST, "#b0b0b0", FOR])
SHARES = LinearSegmentedColormap.from_list("shares", ["#b0b0b0", FOR])


def picture(attribution: Any, *, ax: Axes | None = None) -> Axes:
    """The image in grey under the colours of its scores, with their scale."""
    height = 4 * attribution.image.height / attribution.image.width
    axes = Picture(5, height).subplots() if ax is None else ax
    axes.imshow(np.asarray(overlay(attribution, width=480)), interpolation="nearest")
    scale = Scale.of(attribution.scores.flatten().tolist())
    largest = scale.largest or 1.0
    norm = Normalize(-largest if scale.signed else 0.0, largest)
    axes.set_axis_off()
    axes.set_title(caption(attribution).replace("$", r"\$"), fontsize=8)
    colours = ScalarMappable(norm, SIGNED if scale.signed else SHARES)
    bar = axes.figure.colorbar(colours, ax=axes, shrink=0.8)
    bar.set_label(literal(scale_name(attribution), LONGEST_NAME), fontsize=8)
    return axes
