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
MEASURES = {"jaccard": "Jaccard-25 %", "spearman": "Spearman"}
MAPPED = "gte-small"  # the model whose maps are drawn
FITTING = {"sst2": 4, "imdb": 2, "yelp": 2, "sva": 4}  # texts on a page
LEFT_OUT = {"Attention", "G×I signed"}  # of the agreement: far from the others, which need room


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
    results = [_read(file) for file in sorted((RESULTS / "faithfulness").glob("*.json"))]
    models = [name for name in BACKBONES if any(cell["model"] == name for cell in results)]
    for metric, arrow in (("comprehensiveness", "↑"), ("sufficiency", "↓")):
        figure = Figure(figsize=(4.4 * len(DATA), 4.6 * len(models)), layout="constrained")
        grid = figure.subplots(len(models), len(DATA), squeeze=False)
        for cell in results:
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
        result = _read(file)
        lines = {m: {k: result["plain"][m][k] for k in ("mean", "low", "high")} for m in SHOWN}
        plots.curves(lines, ax=axes)
        title = f"{result['model']}, {result['data']}: {result['texts']} texts"
        seeds = result["seeds"]
        band = f"mean ± deviation of {seeds} seeds" if seeds > 1 else "95 % interval"
        axes.set_title(f"{title}, {band}", fontsize=9)
    _save(figure, "curves")


def agreement() -> None:
    """Figures 5 and 6."""
    files = sorted((RESULTS / "agreement").glob("*.json"))
    figure = Figure(figsize=(11, 4.6 * len(files)), layout="constrained")
    for row, file in zip(figure.subplots(len(files), 2, squeeze=False), files, strict=True):
        result = _read(file)
        title = f"{result['backbone']}, {result['models']} seeds, {result['texts']} sentences"
        for axes, (measure, label) in zip(row, MEASURES.items(), strict=True):
            values = {m: v[measure] for m, v in result["pairs"].items() if m not in LEFT_OUT}
            plots.agreement(values, ax=axes, xlabel=label)
            axes.set_title(title, fontsize=9)
    _save(figure, "agreement")


def anisotropy() -> None:
    """Figure 2."""
    results = [_read(file) for file in sorted((RESULTS / "anisotropy").glob("*.json"))]
    measured = {result["model"]: result for result in results}
    panels = {"measured": measured, "published": _read(PAPER)["anisotropy"]}
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    for axes, (title, models) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        lines = {
            model: {key: result[key] for key in ("outputs", "transformed")}
            for model, result in models.items()
        }
        plots.anisotropy(lines, ax=axes)
        axes.set_title(f"SST-2, {title}", fontsize=9)
        axes.set_ylim(0, 1)
    _save(figure, "anisotropy")


def layers() -> None:
    """Figures 9, 10 and 11."""
    by_method = _read(RESULTS / "maps" / f"{MAPPED}-sst2.json")["layers"]
    for name, plain in by_method.items():
        attribution = alti.Attribution.from_dict(plain)
        _save(attribution.plot("layers"), f"layers-{name.lower()}")
        if name == "ALTI":
            _save(attribution.plot("matrix"), "relevance-alti")


def saliency() -> None:
    """Tables 1, 5 and 6, set as the paper sets them; needs pdflatex and pdftoppm."""
    if not (shutil.which("pdflatex") and shutil.which("pdftoppm")):
        print("saliency maps left out: pdflatex and pdftoppm are not installed")
        return
    for data in DATA:
        texts = _read(RESULTS / "maps" / f"{MAPPED}-{data}.json")["saliency"]
        maps = [
            replace(alti.Attribution.from_dict(plain), method=name, options={})
            for text in texts[: FITTING[data]]
            for name, plain in text.items()
        ]
        page = _first_page(latex.document(maps))
        white = Image.new("RGB", page.size, "white")
        ink = ImageChops.difference(page, white).getbbox() or (0, 0, *page.size)
        file = FIGURES / f"saliency-{data}.png"
        ImageOps.expand(page.crop(ink), 12, "white").save(file)
        print(file)


def _first_page(document: str) -> Image.Image:
    """A LaTeX document as a picture."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "maps.tex").write_text(document, encoding="utf-8")
        quiet: Any = {"cwd": folder, "check": True, "stdout": subprocess.DEVNULL}
        subprocess.run(["pdflatex", "-interaction=batchmode", "maps.tex"], **quiet)
        first_page = ["-f", "1", "-l", "1", "-singlefile"]
        form = ["-png", "-r", "110"]
        subprocess.run(["pdftoppm", *form, *first_page, "maps.pdf", "maps"], **quiet)
        return Image.open(Path(folder, "maps.png")).convert("RGB")


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8"))


def _save(figure: Figure, name: str) -> None:
    file = FIGURES / f"{name}.png"
    figure.savefig(file, dpi=110)
    print(file)


if __name__ == "__main__":
    main()
