"""Draw the figures from the result files into docs/figures.

python -m reproduction.figures
"""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import alti
from alti.model.loading import DEFAULT_NAME
from alti.views import latex, plots
from alti.views.plots.look import BLUE, INK, MUTED, frame
from alti.views.tables import Cell
from reproduction.settings import BACKBONES, DATA, RESULTS, ROOT

FIGURES = ROOT / "docs" / "figures"
WIDE = 9.0  # inches: readable in the column of a page
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
    """Table 2 as dots with their intervals: a row for each data set, a column for each backbone.

    All panels have the same methods in the same order, and one axis.
    """
    results = [_read(file) for file in sorted((RESULTS / "faithfulness").glob("*.json"))]
    models = [name for name in BACKBONES if any(cell["model"] == name for cell in results)]
    for metric, arrow in (("comprehensiveness", "↑"), ("sufficiency", "↓")):
        order = _order(results, metric, lower=arrow == "↓")
        figure = Figure(figsize=(WIDE, 0.15 * len(order) * len(DATA) + 1.6), layout="constrained")
        grid = figure.subplots(len(DATA), len(models), sharex=True, sharey=True, squeeze=False)
        for cell in results:
            axes = grid[list(DATA).index(cell["data"])][models.index(cell["model"])]
            _dots(axes, cell["means"], order, metric, lower=arrow == "↓")
            title = f"{cell['model']}, {cell['data']}: {cell['texts']} texts"
            axes.set_title(title, fontsize=8.5, color=INK)
        figure.supxlabel(f"{metric} {arrow} (blue: the best of a panel)", fontsize=9, color=INK)
        _save(figure, metric)


def _order(results: list[dict[str, Any]], metric: str, *, lower: bool) -> list[str]:
    """The methods from the worst to the best on average; those of every cell."""
    names = list(dict.fromkeys(name for cell in results for name in cell["means"]))
    values = {
        name: fmean(cell["means"][name][metric][0] for cell in results if name in cell["means"])
        for name in names
    }
    return sorted(names, key=lambda name: values[name], reverse=lower)


def _dots(axes: Axes, means: dict[str, Any], order: list[str], metric: str, *, lower: bool) -> None:
    """A dot with its interval for each method."""
    cells = {name: Cell(*values[metric]) for name, values in means.items()}
    best = (min if lower else max)(cells, key=lambda name: cells[name].value)
    frame(axes, "")
    for row, name in enumerate(order):
        if name not in cells:
            continue
        colour = BLUE if name == best else MUTED
        if interval := cells[name].interval:
            axes.plot(interval, (row, row), color=colour, linewidth=1.2)
        axes.plot(cells[name].value, row, "o", color=colour, markersize=3.5)
    axes.set_ylim(-0.6, len(order) - 0.4)
    axes.set_yticks(range(len(order)), order, fontsize=7.5, color=INK)
    axes.tick_params(axis="x", labelsize=7.5)


def curves() -> None:
    """Figures 4 and 7: one legend, one axis of probabilities."""
    files = sorted((RESULTS / "curves").glob("*.json"))
    columns = min(3, len(files))
    rows = -(-len(files) // columns)
    figure = Figure(figsize=(WIDE, 2.7 * rows + 0.7), layout="constrained")
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False).flat
    for unused in grid[len(files) :]:
        unused.remove()
    for number, (axes, file) in enumerate(zip(grid, files, strict=False)):
        result = _read(file)
        lines = {m: {k: result["plain"][m][k] for k in ("mean", "low", "high")} for m in SHOWN}
        plots.curves(lines, ax=axes)
        seeds = result["seeds"]
        band = f"± deviation of {seeds} seeds" if seeds > 1 else "95 % interval"
        title = f"{result['model']}, {result['data']}: {result['texts']} texts,\n{band}"
        axes.set_title(title, fontsize=8.5, color=INK)
        axes.set_ylabel(axes.get_ylabel() if number % columns == 0 else "", fontsize=8.5)
    _one_legend(figure, 5)
    _save(figure, "curves")


def _one_legend(figure: Figure, columns: int) -> None:
    """The legend of the first panel below all of them."""
    first = figure.axes[0].get_legend()
    assert first is not None
    handles, texts = first.legend_handles, [text.get_text() for text in first.get_texts()]
    for axes in figure.axes:
        if (legend := axes.get_legend()) is not None:
            legend.remove()
    look: dict[str, Any] = {"frameon": False, "fontsize": 8.5, "labelcolor": INK}
    figure.legend(handles, texts, loc="outside lower center", ncols=columns, **look)


def agreement() -> None:
    """Figures 5 and 6: a column for each measure, with one axis."""
    files = sorted((RESULTS / "agreement").glob("*.json"))
    figure = Figure(figsize=(WIDE, 3.1 * len(files)), layout="constrained")
    grid = figure.subplots(len(files), 2, sharex="col", squeeze=False)
    for row, file in zip(grid, files, strict=True):
        result = _read(file)
        title = f"{result['backbone']}, {result['models']} seeds, {result['texts']} sentences"
        for axes, (measure, label) in zip(row, MEASURES.items(), strict=True):
            values = {m: v[measure] for m, v in result["pairs"].items() if m not in LEFT_OUT}
            plots.agreement(values, ax=axes, xlabel=label)
            axes.set_title(title, fontsize=8.5, color=INK)
    _save(figure, "agreement")


def anisotropy() -> None:
    """Figure 2: one legend, one axis of cosines."""
    results = [_read(file) for file in sorted((RESULTS / "anisotropy").glob("*.json"))]
    measured = {_named(result["model"]): result for result in results}
    panels = {"measured": measured, "published": _read(PAPER)["anisotropy"]}
    every = list(dict.fromkeys(model for models in panels.values() for model in models))
    figure = Figure(figsize=(WIDE, 4.0), layout="constrained")
    grid = figure.subplots(1, 2, sharey=True)
    for axes, (title, models) in zip(grid, panels.items(), strict=True):
        nothing: dict[str, Any] = {"outputs": [], "transformed": []}
        lines = {
            model: {key: models.get(model, nothing)[key] for key in ("outputs", "transformed")}
            for model in every  # the same colours in both
        }
        plots.anisotropy(lines, ax=axes)
        axes.set_title(f"SST-2, {title}", fontsize=8.5, color=INK)
        axes.set_ylim(0, 1)
    grid[1].set_ylabel("")
    _one_legend(figure, 4)
    _save(figure, "anisotropy")


def _named(model: str) -> str:
    """The embedded model by the name that it has everywhere else."""
    return DEFAULT_NAME if model == "default" else model


def layers() -> None:
    """Figures 9, 10 and 11, on one scale."""
    by_method = _read(RESULTS / "maps" / f"{MAPPED}-sst2.json")["layers"]
    found = {name: alti.Attribution.from_dict(plain) for name, plain in by_method.items()}
    largest = max(_largest_share(attribution) for attribution in found.values())
    for name, attribution in found.items():
        _save(attribution.plot("layers", largest=largest), f"layers-{name.lower()}")
        if name == "ALTI":
            _save(attribution.plot("matrix"), "relevance-alti")


def _largest_share(attribution: alti.Attribution) -> float:
    assert attribution.layers is not None
    count = len(attribution.layers)
    return max(float(attribution.relevance(layer).max()) for layer in range(count))


def saliency() -> None:
    """Tables 1, 5 and 6, as the paper sets them; needs pdflatex and pdftocairo."""
    if not (shutil.which("pdflatex") and shutil.which("pdftocairo")):
        print("saliency maps left out: pdflatex and pdftocairo are not installed")
        return
    for data in DATA:
        texts = _read(RESULTS / "maps" / f"{MAPPED}-{data}.json")["saliency"]
        maps = [
            alti.Attribution.from_dict(plain)
            for text in texts[: FITTING[data]]
            for plain in text.values()
        ]
        file = FIGURES / f"saliency-{data}.svg"
        file.write_text(_first_page(latex.document(maps)), encoding="utf-8")
        print(file)


def _first_page(document: str) -> str:
    """A LaTeX document as SVG, without the empty space around it."""
    cropped = r"\documentclass[border=8pt,varwidth=17cm]{standalone}"
    document = document.replace(r"\documentclass{article}", cropped)
    document = document.replace(r"\usepackage[margin=2.5cm]{geometry}" + "\n", "")
    white = r"\pagecolor{white}"  # also on a dark page
    start = rf"\usepackage{{mathptmx,courier}}\begin{{document}}{white}"  # outlines, no bitmaps
    document = document.replace(r"\begin{document}", start)
    document = document.replace("longtable}", "tabular}").replace(r"\usepackage{tabular}", "")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "maps.tex").write_text(document, encoding="utf-8")
        quiet: Any = {"cwd": folder, "check": True, "stdout": subprocess.DEVNULL}
        subprocess.run(["pdflatex", "-interaction=batchmode", "maps.tex"], **quiet)
        subprocess.run(
            ["pdftocairo", "-svg", "-f", "1", "-l", "1", "maps.pdf", "maps.svg"], **quiet
        )
        return Path(folder, "maps.svg").read_text(encoding="utf-8")


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8"))


def _save(figure: Figure, name: str) -> None:
    """As SVG, the same bytes for the same results."""
    file = FIGURES / f"{name}.svg"
    with mpl.rc_context({"svg.hashsalt": "alti"}):
        figure.savefig(file, metadata={"Date": None}, facecolor="white")
    print(file)


if __name__ == "__main__":
    main()
