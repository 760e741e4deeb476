"""The user's text with coloured backgrounds, for a web page or a notebook: no scripts, no network, no inline styles."""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from alti._characters import visible
from alti._errors import UsageError
from alti.model.attribution import Attribution
from alti.views.colours import DARK, LIGHT, STEPS, Scale, paint
from alti.views.segments import (
    Piece,
    chance_of,
    label_of,
    method_of,
    passages,
    scale_of,
    together,
    told_rest,
)

THEMES = ("light", "dark")


def _sheet() -> str:
    """html.css, a class for each level, and the two ramps of the legend."""
    rules = [(Path(__file__).parent / "html.css").read_text(encoding="utf-8")]
    for level in [*range(-STEPS, 0), *range(1, STEPS + 1)]:
        light, dark = paint(level, LIGHT), paint(level, DARK)
        ground = _either("background", light.background, dark.background)
        rules.append(
            f".alti .{class_of(level)} {{ {ground} {_either('color', light.ink, dark.ink)} }}"
        )
    for name, lowest in (("alti-ramp", 0), ("alti-both", -STEPS)):
        levels = range(lowest, STEPS + 1, 4)
        pale, deep = (
            [paint(level, theme).background for level in levels] for theme in (LIGHT, DARK)
        )
        both = ", ".join(
            f"light-dark({light}, {dark})" for light, dark in zip(pale, deep, strict=True)
        )
        ramps = (
            f"background: linear-gradient(90deg, {stops});" for stops in (", ".join(pale), both)
        )
        rules.append(f".alti .{name} {{ {' '.join(ramps)} }}")
    return "\n".join(rules) + "\n"


def _either(name: str, light: str, dark: str) -> str:
    """A colour by theme; browsers from before 2024 show the light one."""
    return f"{name}: {light}; {name}: light-dark({light}, {dark});"


def class_of(level: int) -> str:
    """The CSS class of a level: alti-f1 to alti-f20 speak for the label, alti-a1 to alti-a20 against it; '' at 0."""
    return f"alti-{'f' if level > 0 else 'a'}{abs(level)}" if level else ""


STYLE = _sheet()  # what fragments need on their page, as a style element or a file of its own


def page(
    found: Attribution | Sequence[Attribution],
    *,
    words: bool = True,
    title: str | None = None,
    theme: str | None = None,
) -> str:
    """A page of its own. Neighbours that explain the same text are stacked, so that methods can be compared.

    Its content security policy allows its own stylesheet and nothing else. theme: light or dark; None is the reader's.
    """
    if theme is not None and theme not in THEMES:
        raise UsageError(
            f"theme {theme!r} does not exist: choose light or dark, or leave it to the reader"
        )
    groups = together(found)
    name = title or (_title(groups[0]) if len(groups) == 1 else f"{len(groups)} texts explained")
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return f"""<!doctype html>
<html lang="en"{f' data-theme="{theme}"' if theme else ""}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="{theme or "light dark"}">
<title>{_escaped(name)}</title>
<style>{STYLE}</style>
</head>
<body class="alti-page">
<main>
{fragment(found, words=words)}
</main>
</body>
</html>
"""


def fragment(found: Attribution | Sequence[Attribution], *, words: bool = True) -> str:
    """A section for each text, to be put on a page that has STYLE. It opens with words, or with tokens."""
    return "\n".join(_section(group, words) for group in together(found))


def _title(group: list[Attribution]) -> str:
    return " · ".join(
        part
        for part in (label_of(group[0]), ", ".join(map(method_of, group)), group[0].model)
        if part
    )


def _section(group: list[Attribution], words: bool) -> str:
    """One text, explained once or several times."""
    first, alone = group[0], len(group) == 1
    said = len({(one.label, chance_of(one)) for one in group}) == 1  # once for all, else row by row
    models = dict.fromkeys(one.model for one in group)
    by = [method_of(first)] if alone else []
    by += [first.model] if len(models) == 1 and first.model else []
    by += [f"cut: {sum(map(len, first.cut))} characters"] if first.cut else []
    rows = "\n".join(_row(one, named=not alone, said=said, model=len(models) > 1) for one in group)
    checked = "" if words else " checked"
    return f"""<section class="alti" aria-label="Explanation">
<header>
{_said(first) if said else ""}
{f'<p class="alti-by">{_escaped(" · ".join(by))}</p>' if by else ""}
<label class="alti-switch"><input type="checkbox"{checked}>tokens</label>
</header>
{rows}
</section>"""


def _said(found: Attribution) -> str:
    chance = f"<span>{chance_of(found)}</span>" if chance_of(found) else ""
    label = f'<strong dir="auto">{_escaped(label_of(found))}</strong>' if found.label else ""
    return f'<p class="alti-says">{label}{chance}</p>' if label or chance else ""


def _row(found: Attribution, *, named: bool, said: bool, model: bool) -> str:
    """One explanation: its name where there are several, the words, and the tokens."""
    small = ([] if said else [label_of(found), chance_of(found)]) + ([found.model] if model else [])
    under = f"<small>{_escaped(' · '.join(filter(None, small)))}</small>" if any(small) else ""
    name = f'<h3 class="alti-name">{_escaped(method_of(found))}{under}</h3>\n' if named else ""
    views = []
    for words, kind in ((True, "words"), (False, "tokens")):
        shown = passages(found, words=words)
        scale = scale_of(found, shown)
        texts = "\n".join(_text(passage, scale, label_of(found)) for passage in shown)
        rest = told_rest(found, scale).replace("-", "−") if words else ""
        views.append(
            f'<div class="alti-{kind}">\n{texts}\n{_legend(scale, label_of(found), rest)}\n</div>'
        )
    return (
        f'<div class="alti-row">\n{name}<div class="alti-view">\n'
        + "\n".join(views)
        + "\n</div>\n</div>"
    )


def _text(passage: list[Piece], scale: Scale, label: str) -> str:
    return f'<p class="alti-text" dir="auto" lang="">{"".join(_pieces(passage, scale, label))}</p>'


def _pieces(passage: list[Piece], scale: Scale, label: str) -> Iterator[str]:
    before: Piece | None = None
    for piece in passage:
        joined = before is not None and before.score is not None and not before.special
        if piece.score is None:
            text = _escaped(piece.text)
            yield f'<span class="alti-cut">{text}</span>' if piece.text.strip() else text
        elif piece.special:
            yield _special(piece, scale)
        else:
            yield _scored(piece, scale, label, joined)
        before = piece


def _scored(piece: Piece, scale: Scale, label: str, joined: bool) -> str:
    """A word or token, its score for all who point at it, tab to it or listen, and the tokens it is made of."""
    score = piece.score or 0.0
    level, number = scale.level(score), _number(scale, score)
    parts = " ".join(f"{token} {_number(scale, score)}" for token, score in piece.tokens)
    names = " ".join(filter(None, (class_of(level), "alti-on" if joined else "")))
    about = [f'class="{names}"'] if names else []
    if level:
        side = f" {'against' if level < 0 else 'for'} {label}" if scale.signed and label else ""
        about += [
            'tabindex="0" role="img"',
            f'aria-label="{_escaped(f"{piece.text}, {number}{side}")}"',
        ]
    about += [f'data-score="{number}"', f'title="{_escaped(parts)}"']
    return f"<span {' '.join(about)}>{_escaped(piece.text)}</span>"


def _special(piece: Piece, scale: Scale) -> str:
    """A special token, shown but not painted; one that is not in the text is drawn by the stylesheet, not copied."""
    token = _escaped(" ".join(token for token, _ in piece.tokens))
    about = f'data-score="{_number(scale, piece.score or 0.0)}" title="{token}, a special token"'
    if piece.text:
        return f'<span class="alti-special" {about}>{_escaped(piece.text)}</span>'
    return f'<span class="alti-special alti-added" role="img" aria-label="{token}" data-token="{token}" {about}></span>'


def _legend(scale: Scale, label: str, rest: str) -> str:
    shown = f'<span class="alti-rest">{rest}</span>' if rest else ""
    if not scale.largest:
        return f'<p class="alti-legend">every score is 0{shown}</p>'
    high = _number(scale, scale.largest)
    if not scale.signed:
        return f'<p class="alti-legend" aria-hidden="true">0<span class="alti-ramp"></span>{high}{shown}</p>'
    low, whom = _number(scale, -scale.largest), f" {_escaped(label)}" if label else ""
    ramp = '<span class="alti-ramp alti-both"></span>'
    return (
        f'<p class="alti-legend" aria-hidden="true">{low} against{ramp}for{whom} {high}{shown}</p>'
    )


def _number(scale: Scale, score: float) -> str:
    return scale.number(score).replace("-", "−")


def _escaped(text: str) -> str:
    return escape(visible(text), quote=True)
