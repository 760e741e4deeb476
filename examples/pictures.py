"""Make the pictures of the README again, from the embedded model: `python examples/pictures.py` (needs chromium)."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops, ImageOps  # matplotlib brings it

import alti

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SENTENCE = "The camera work is gorgeous, but nobody on screen seems to have read the script."
METHODS = ("alti", "absence", "integrated_gradients", "attention_rollout")
QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    model = alti.load()
    found = {method: model.explain(SENTENCE, method=method) for method in METHODS}
    screenshot(alti.html.page(list(found.values()), theme="light"), IMAGES / "methods.png")
    found["alti"].plot("graph", threshold=0.1).savefig(IMAGES / "graph.png", dpi=110)
    found["absence"].plot("tokens").savefig(IMAGES / "tokens.png", dpi=110)


def screenshot(page: str, file: Path) -> None:
    """A web page as a picture, without the empty space around it."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("pictures of web pages take chromium, which is not installed")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "page.html").write_text(page, encoding="utf-8")
        shot = [f"--screenshot={folder}/page.png", f"--user-data-dir={folder}/user", "--window-size=860,900"]
        scale = "--force-device-scale-factor=1.5"
        subprocess.run([chromium, *QUIET, *shot, scale, f"file://{folder}/page.html"], check=True, capture_output=True)
        shown = Image.open(f"{folder}/page.png").convert("RGB")
    corner = Image.new("RGB", shown.size, shown.getpixel((0, 0)))
    ink = ImageChops.difference(shown, corner).getbbox() or (0, 0, *shown.size)
    ImageOps.expand(shown.crop(ink), 24, shown.getpixel((0, 0))).save(file, optimize=True)


if __name__ == "__main__":
    main()
