"""Figures: a click opens a picture by itself, where a phone can enlarge it."""

import re

FIGURE = re.compile(r'(?<!")(<img [^>]*?src="([^"]+\.(?:svg|png))"[^>]*?>)(?!</a>)')


def on_page_content(html: str, **_: object) -> str:
    return FIGURE.sub(r'<a class="figure" href="\2">\1</a>', html)
