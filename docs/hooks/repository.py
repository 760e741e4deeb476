"""Links that leave docs/: README and its like become pages, other files are named.

The documents are written for readers of the repository, so a page may link to ../README.md#part or
to ../src/alti/families.py. A link to a file that does not exist fails the build (`make docs`).
"""

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
FOLDER = "repository"  # of the site, for pages that are not in docs/
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "reproduction/README.md")
LINK = re.compile(r"(?P<text>\[[^\]\n]*\n?[^\]\n]*\])\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
CODE = re.compile(r"^```.*?^```$|^( {4}.*\n)+|`[^`\n]+`", re.MULTILINE | re.DOTALL)

log = logging.getLogger("mkdocs.hooks.repository")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for path in PAGES:
        content = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, f"{FOLDER}/{path}", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of one page, not those inside of code."""
    parts, end = [], 0
    for code in CODE.finditer(markdown):
        parts += [_linked(markdown[end : code.start()], page.file.src_uri, config), code[0]]
        end = code.end()
    return "".join([*parts, _linked(markdown[end:], page.file.src_uri, config)])


def _linked(text: str, page: str, config: MkDocsConfig) -> str:
    def link(match: re.Match[str]) -> str:
        path = _in_repository(page, match["path"])
        return match[0] if path is None else _outside(match, path, page, config)

    return LINK.sub(link, text)


def _in_repository(page: str, path: str) -> str | None:
    """The file of the repository that a link means; None: the site has it where the link says."""
    moved = page.startswith(f"{FOLDER}/")
    here = page.removeprefix(f"{FOLDER}/") if moved else f"docs/{page}"
    meant = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
    inside = meant.startswith("docs/") and here.startswith("docs/")
    return None if inside else meant


def _outside(match: re.Match[str], path: str, page: str, config: MkDocsConfig) -> str:
    text, anchor = match["text"], match["anchor"] or ""
    site = path.removeprefix("docs/") if path.startswith("docs/") else f"{FOLDER}/{path}"
    if path.startswith("docs/") or path in PAGES:
        return f"{text}({posixpath.relpath(site, posixpath.dirname(page) or '.')}{anchor})"
    if not (ROOT / path).exists():
        log.warning("%s links to %s, which does not exist", page, path)
    if config.repo_url:
        return f"{text}({config.repo_url.rstrip('/')}/blob/main/{path}{anchor})"
    named = text[1:-1]
    return named if path.endswith(named.strip("`")) else f"{named} (`{path}`)"
