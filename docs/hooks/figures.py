"""Figures: a click opens a picture by itself, and a picture of one theme is shown in that theme.

A picture with two themes is written as GitHub reads it: a <picture> whose source is for the dark.
"""

import re

FIGURE = re.compile(
    r'(?<!")(?P<img><img [^>]*?src="(?P<file>[^"#]+\.(?:svg|png))(?:#(?P<only>[a-z-]+))?"[^>]*?>)'
)
THEMED = re.compile(
    r"<picture>\s*"
    r'<source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)">\s*'
    r'<img alt="(?P<alt>[^"]*)" src="(?P<light>[^"]+)">\s*'
    r"</picture>"
)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Both as Markdown, whose links are checked; the site's own switch chooses one of them."""
    return THEMED.sub(r"![\g<alt>](\g<light>#only-light)\n![\g<alt>](\g<dark>#only-dark)", markdown)


def on_page_content(html: str, **_: object) -> str:
    return FIGURE.sub(_figure, html)


def _figure(match: re.Match[str]) -> str:
    look = " ".join(filter(None, ("figure", match["only"])))
    return f'<a class="{look}" href="{match["file"]}">{match["img"]}</a>'
