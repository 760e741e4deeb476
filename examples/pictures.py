"""Make the pictures of the README and of docs/pictures.md again (needs chromium)."""

import io
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

import alti
from alti.views import terminal
from alti.views.colours import DARK

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from browser import CHROMIUM, Browser  # noqa: E402

IMAGES = ROOT / "docs" / "images"
SENTENCE = "The camera work is gorgeous, but nobody on screen seems to have read the script."
METHODS = ("alti", "absence", "integrated_gradients", "attention_rollout")


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    model = alti.load()
    results = {method: model.explain(SENTENCE, method=method) for method in METHODS}
    for theme in ("light", "dark"):
        page = alti.html.page(list(results.values()), theme=theme)
        drawn(page, IMAGES / f"methods-{theme}.svg", width=480)  # a phone shows it whole
    in_a_terminal(list(results.values()), IMAGES / "terminal.svg")
    drawn(f"<!doctype html>{results['alti']._repr_html_()}", IMAGES / "card.svg", selector=".alti")
    plotted(results["absence"].plot("tokens"), IMAGES / "tokens.svg")
    plotted(results["alti"].plot("matrix"), IMAGES / "matrix.svg")
    plotted(results["alti"].plot("layers"), IMAGES / "layers.svg")
    plotted(results["alti"].plot("graph"), IMAGES / "graph.svg")
    maps = model.heads("It is not a good film.", layer=3)
    plotted(maps.plot(), IMAGES / "heads.svg")


def in_a_terminal(results: list[alti.Attribution], file: Path) -> None:
    """What `alti explain` and `alti compare` print in a terminal with 16 million colours."""
    style = terminal.Style(terminal.ALL, DARK, 92)
    console = Console(record=True, width=94, file=io.StringIO(), force_terminal=True)
    explained = terminal.render(results[0], style=style)
    compared = terminal.compare(results, style=style)
    console.print(Text.from_ansi(f'$ alti explain "{SENTENCE}"\n{explained}\n'))
    console.print(Text.from_ansi(f'$ alti compare "{SENTENCE}"\n{compared}'))
    page = console.export_html(inline_styles=True, theme=MONOKAI)
    drawn(page, file, width=960, selector="pre")


def drawn(page: str, file: Path, width: int = 860, selector: str = "main") -> None:
    """A part of a web page as SVG, drawn as the page of `alti serve` draws its pictures."""
    if CHROMIUM is None:
        sys.exit("pictures of web pages need chromium, which is not installed")
    script = (ROOT / "src/alti/web/static/drawing.js").read_text(encoding="utf-8")
    node = f"document.querySelector({selector!r})"
    code = (
        f"(() => {{ {script.replace('export function', 'function')}\n"
        "for (const it of document.querySelectorAll('.alti-switch')) it.remove();\n"  # of no use
        f"return new XMLSerializer().serializeToString(drawing({node})) }})()"
    )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder, "page.html").write_text(page, encoding="utf-8")
        browser = Browser(Path(folder, "user"))
        browser.size(width, 1000)
        browser.open(f"file://{folder}/page.html")
        file.write_text(str(browser.run(code)), encoding="utf-8")
        browser.close()
    print(file)


def plotted(figure: Figure, file: Path) -> None:
    """A plot as SVG, the same bytes for the same result."""
    with mpl.rc_context({"svg.hashsalt": "alti"}):
        figure.savefig(file, metadata={"Date": None})
    print(file)


if __name__ == "__main__":
    main()
