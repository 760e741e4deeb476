"""Make the pictures of the README and of docs/pictures.md again (needs chromium)."""

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops, ImageOps  # matplotlib brings it
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

import alti
from alti.views import terminal
from alti.views.colours import DARK

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SENTENCE = "The camera work is gorgeous, but nobody on screen seems to have read the script."
METHODS = ("alti", "absence", "integrated_gradients", "attention_rollout")
QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    model = alti.load()
    results = {method: model.explain(SENTENCE, method=method) for method in METHODS}
    for theme in ("light", "dark"):
        page = alti.html.page(list(results.values()), theme=theme)
        screenshot(page, IMAGES / f"methods-{theme}.png")
    in_a_terminal(list(results.values()), IMAGES / "terminal.png")
    results["absence"].plot("tokens").savefig(IMAGES / "tokens.png", dpi=110)
    results["alti"].plot("matrix").savefig(IMAGES / "matrix.png", dpi=110)
    results["alti"].plot("layers").savefig(IMAGES / "layers.png", dpi=110)
    results["alti"].plot("graph", threshold=0.1).savefig(IMAGES / "graph.png", dpi=110)


def in_a_terminal(results: list[alti.Attribution], file: Path) -> None:
    """What `alti explain` and `alti compare` print in a terminal with 16 million colours."""
    style = terminal.Style(terminal.ALL, DARK, 92)
    console = Console(record=True, width=94, file=io.StringIO(), force_terminal=True)
    explained = terminal.render(results[0], style=style)
    compared = terminal.compare(results, style=style)
    console.print(Text.from_ansi(f'$ alti explain "{SENTENCE}"\n{explained}\n'))
    console.print(Text.from_ansi(f'$ alti compare "{SENTENCE}"\n{compared}'))
    page = console.export_html(inline_styles=True, theme=MONOKAI)
    screenshot(page.replace("<body", '<body style="margin: 24px"'), file, width=960)


def screenshot(page: str, file: Path, width: int = 860, height: int = 1000) -> None:
    """A web page as a picture, without the empty space around it."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("pictures of web pages need chromium, which is not installed")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "page.html").write_text(page, encoding="utf-8")
        shot = [
            f"--screenshot={folder}/page.png",
            f"--user-data-dir={folder}/user",
            f"--window-size={width},{height}",
        ]
        scale = "--force-device-scale-factor=1.5"
        subprocess.run(
            [chromium, *QUIET, *shot, scale, f"file://{folder}/page.html"],
            check=True,
            capture_output=True,
        )
        shown = Image.open(f"{folder}/page.png").convert("RGB")
    corner = Image.new("RGB", shown.size, shown.getpixel((0, 0)))
    ink = ImageChops.difference(shown, corner).getbbox() or (0, 0, *shown.size)
    ImageOps.expand(shown.crop(ink), 24, shown.getpixel((0, 0))).save(file, optimize=True)


if __name__ == "__main__":
    main()
