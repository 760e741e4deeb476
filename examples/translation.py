"""The pictures of an alignment in docs/translation.md: python examples/translation.py MODEL

MODEL is a German–English model of `alti train marian MODEL --task translation`.
"""

import sys
from pathlib import Path

from pictures import plotted

import alti

TEXT = "Ein kleiner Hund läuft schnell durch das hohe Gras."
IMAGES = Path(__file__).parents[1] / "docs" / "images"


def main() -> None:
    model = alti.load(sys.argv[1])
    result = model.explain(TEXT, generate=30)
    print(result)
    print("share of the source:", [round(share, 2) for share in result.source_share.tolist()])
    alignment = result.alignment()
    print(alignment)
    print(alignment.render())
    for kind in ("lines", "matrix"):
        plotted(alignment.plot(kind), IMAGES / f"alignment-{kind}.svg")


if __name__ == "__main__":
    main()
