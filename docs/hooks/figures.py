"""Figures: a click opens a picture by itself, and a picture with variants is shown as the right one.

Variants are written as GitHub reads them: a <picture> with a source for dark pages or for phones.
"""

import re

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


def on_page_content(html: str, **_: object) -> str:
    return FIGURE.sub(_figure, html)


def _figure(match: re.Match[str]) -> str:
    look = " ".join(filter(None, ("figure", match["only"])))
    return f'<a class="{look}" href="{match["file"]}">{match["img"]}</a>'
