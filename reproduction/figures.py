"""Draw the figures from the result files into docs/figures.

python -m reproduction.figures
"""

import json
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image, ImageChops, ImageOps  # matplotlib brings it

import alti
from alti.views import latex, plots
from alti.views.tables import Cell
from reproduction.settings import BACKBONES, DATA, RESULTS, ROOT

FIGURES = ROOT / "docs" / "figures"
PAPER = ROOT / "reproduction" / "paper.json"
SHOWN = (
    "Random",
    "Rollout",
    "Globenc",
    "Grad ℓ2",
    "G×I μ",
    "IG ℓ2",
    "ALTI",
    "IG signed",
    "Absence",
)
MAPPED = "gte-small"  # the model whose maps are drawn
FITTING = {"sst2": 4, "imdb": 2, "yelp": 2, "sva": 4}  # texts on a page
LEFT_OUT = {
    "Attention",
    "G×I signed",
}  # of the agreement: far from the others, they would press them together


def main() -> None:
    FIGURES.mkdir(parents=True, exist_ok=True)
    faithfulness()
    curves()
    agreement()
    anisotropy()
    layers()
    saliency()


def faithfulness() -> None:
    """Table 2 as dots with their intervals: a row for each backbone, a column for each data set."""
    found = [_read(file) for file in sorted((RESULTS / "faithfulness").glob("*.json"))]
    models = [name for name in BACKBONES if any(cell["model"] == name for cell in found)]
    for metric, arrow in (("comprehensiveness", "↑"), ("sufficiency", "↓")):
        figure = Figure(figsize=(4.4 * len(DATA), 4.6 * len(models)), layout="constrained")
        grid = figure.subplots(len(models), len(DATA), squeeze=False)
        for cell in found:
            axes = grid[models.index(cell["model"])][list(DATA).index(cell["data"])]
            cells = [(name, Cell(*values[metric])) for name, values in cell["means"].items()]
            plots.methods(cells, column=f"{metric} {arrow}", ax=axes)
            axes.set_title(f"{cell['model']}, {cell['data']}: {cell['texts']} texts", fontsize=9)
        _save(figure, metric)


def curves() -> None:
    """Figures 4 and 7."""
    files = sorted((RESULTS / "curves").glob("*.json"))
    figure = Figure(figsize=(5.2 * len(files), 4.2), layout="constrained")
    for axes, file in zip(figure.subplots(1, len(files), squeeze=False)[0], files, strict=True):
        found = _read(file)
        lines = {m: {k: found["plain"][m][k] for k in ("mean", "low", "high")} for m in SHOWN}
        plots.curves(lines, ax=axes)
        seeds = (
            f", mean ± deviation of {found['seeds']} seeds"
            if found["seeds"] > 1
            else ", 95 % interval"
        )
        axes.set_title(
            f"{found['model']}, {found['data']}: {found['texts']} texts{seeds}", fontsize=9
        )
    _save(figure, "curves")


def agreement() -> None:
    """Figures 5 and 6."""
    files = sorted((RESULTS / "agreement").glob("*.json"))
    figure = Figure(figsize=(11, 4.6 * len(files)), layout="constrained")
    for row, file in zip(figure.subplots(len(files), 2, squeeze=False), files, strict=True):
        found = _read(file)
        for axes, measure in zip(row, ("jaccard", "spearman"), strict=True):
            values = {m: v[measure] for m, v in found["pairs"].items() if m not in LEFT_OUT}
            plots.agreement(
                values, ax=axes, xlabel={"jaccard": "Jaccard-25 %", "spearman": "Spearman"}[measure]
            )
            axes.set_title(
                f"{found['backbone']}, {found['models']} seeds, {found['texts']} sentences",
                fontsize=9,
            )
    _save(figure, "agreement")


def anisotropy() -> None:
    """Figure 2."""
    own = {
        found["model"]: found
        for found in map(_read, sorted((RESULTS / "anisotropy").glob("*.json")))
    }
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    for axes, (title, models) in zip(
        figure.subplots(1, 2),
        (("measured", own), ("published", _read(PAPER)["anisotropy"])),
        strict=True,
    ):
        lines = {
            m: {key: found[key] for key in ("outputs", "transformed")}
            for m, found in models.items()
        }
        plots.anisotropy(lines, ax=axes)
        axes.set_title(f"SST-2, {title}", fontsize=9)
        axes.set_ylim(0, 1)
    _save(figure, "anisotropy")


def layers() -> None:
    """Figures 9, 10 and 11."""
    found = _read(RESULTS / "maps" / f"{MAPPED}-sst2.json")["layers"]
    for name, plain in found.items():
        attribution = alti.Attribution.from_dict(plain)
        _save(attribution.plot("layers"), f"layers-{name.lower()}")
        if name == "ALTI":
            _save(attribution.plot("matrix"), "relevance-alti")


def saliency() -> None:
    """Tables 1, 5 and 6, set as the paper sets them; needs pdflatex and pdftoppm."""
    if not (shutil.which("pdflatex") and shutil.which("pdftoppm")):
        print("saliency maps left out: pdflatex and pdftoppm are not here")
        return
    for data in DATA:
        texts = _read(RESULTS / "maps" / f"{MAPPED}-{data}.json")["saliency"]
        found = [
            replace(alti.Attribution.from_dict(plain), method=name, options={})
            for text in texts[: FITTING[data]]
            for name, plain in text.items()
        ]
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "maps.tex").write_text(latex.document(found), encoding="utf-8")
            quiet: Any = {"cwd": folder, "check": True, "stdout": subprocess.DEVNULL}
            subprocess.run(["pdflatex", "-interaction=batchmode", "maps.tex"], **quiet)
            first = [
                "pdftoppm",
                "-png",
                "-r",
                "110",
                "-f",
                "1",
                "-l",
                "1",
                "-singlefile",
                "maps.pdf",
                "maps",
            ]
            subprocess.run(first, **quiet)
            page = Image.open(Path(folder, "maps.png")).convert("RGB")
            ink = ImageChops.difference(page, Image.new("RGB", page.size, "white")).getbbox() or (
                0,
                0,
                *page.size,
            )
            file = FIGURES / f"saliency-{data}.png"
            ImageOps.expand(page.crop(ink), 12, "white").save(file)
            print(file)


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8"))


def _save(figure: Figure, name: str) -> None:
    file = FIGURES / f"{name}.png"
    figure.savefig(file, dpi=110)
    print(file)


if __name__ == "__main__":
    main()
