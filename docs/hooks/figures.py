"""Figures: a click opens a picture by itself; of variants the right one is shown; wide ones scroll.

Variants are written as GitHub reads them: a <picture> with a source for dark pages or for phones.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page

WIDE = 550  # pixels: what is wider would be too small on a phone
SIZE = re.compile(rb'<svg[^>]*? width="([\d.]+)(pt|px)?"')
FIGURE = re.compile(
    r'(?<!")(?P<img><img [^>]*?src="(?P<file>[^"#]+\.(?:svg|png))(?:#(?P<only>[a-z-]+))?"[^>]*?>)'
)
PICTURE = re.compile(
    r"<picture>\s*"
    r'<source media="\((?P<where>[^")]+)\)" srcset="(?P<other>[^"]+)">\s*'
    r'<img alt="(?P<alt>[^"]*)" src="(?P<usual>[^"]+)">\s*'
    r"</picture>"
)
ONLY = {  # what site.css shows there, and elsewhere
    "prefers-color-scheme: dark": ("only-dark", "only-light"),  # by the site's own switch
    "max-width: 600px": ("only-narrow", "only-wide"),
}


def on_page_markdown(markdown: str, **_: object) -> str:
    return PICTURE.sub(_variants, markdown)


def _variants(match: re.Match[str]) -> str:
    """Each variant as Markdown, whose links are checked."""
    there, elsewhere = ONLY[match["where"]]
    shown = ((match["usual"], elsewhere), (match["other"], there))
    return "\n".join(f"![{match['alt']}]({file}#{only})" for file, only in shown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, **_: object) -> str:
    def figure(match: re.Match[str]) -> str:
        file = posixpath.normpath(posixpath.join(posixpath.dirname(page.url), match["file"]))
        wide = "wide" if _width(Path(config.docs_dir, file)) > WIDE else None
        look = " ".join(filter(None, ("figure", wide, match["only"])))
        return f'<a class="{look}" href="{match["file"]}">{match["img"]}</a>'

    return FIGURE.sub(figure, html)


def _width(file: Path) -> float:
    """Of a PNG or an SVG, in pixels."""
    if not file.is_file():
        return 0.0  # which has been said: no link may lead nowhere
    start = file.read_bytes()[:4000]
    if file.suffix == ".png":
        return int.from_bytes(start[16:20])
    found = SIZE.search(start)
    assert found, file
    return float(found[1]) * (4 / 3 if found[2] == b"pt" else 1)
