"""The user's text on coloured backgrounds as HTML, without scripts, requests or inline styles."""

import base64
import hashlib
from collections.abc import Iterator
from html import escape
from itertools import chain
from pathlib import Path

from alti._characters import visible
from alti._errors import UsageError
from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.views import lens
from alti.views.colours import DARK, LIGHT, STEPS, Scale, paint
from alti.views.said import (
    Ranked,
    Shown,
    apart,
    by_words,
    chance_of,
    cut_note,
    is_text,
    label_of,
    meaning_of,
    method_of,
    notes,
    number_of,
    order_of,
    probability_of,
    scale_name,
    sections,
    shortened,
    side_of,
    strongest,
    token_of,
    unit_of,
    unnamed,
    whole_answer,
)
from alti.views.segments import Piece, passages, scale_of

THEMES = ("light", "dark")
MOST = 3  # words that a token of an answer rests on
LONGEST = 300  # characters of a group's text
_WIDTHS = range(1, 101)  # of bars, in percent: there is no style in an attribute


def _style_sheet() -> str:
    """html.css, classes for levels and for the widths of bars, and the legend's two ramps."""
    rules = [(Path(__file__).parent / "html.css").read_text(encoding="utf-8")]
    rules += [_level_rule(level) for level in range(-STEPS, STEPS + 1) if level]
    rules += [f".alti .alti-zero {{ {_ground(0)} }}"]  # where no score is a colour too
    rules += [f".alti .alti-w{step} {{ width: {step}%; }}" for step in _WIDTHS]
    rules += [_ramp_rule("alti-ramp", 0), _ramp_rule("alti-both", -STEPS)]
    return "\n".join(rules) + "\n"


def _level_rule(level: int) -> str:
    colour = _by_theme("color", paint(level, LIGHT).ink, paint(level, DARK).ink)
    return f".alti .{class_of(level)} {{ {_ground(level)} {colour} }}"


def _ground(level: int) -> str:
    return _by_theme("background", paint(level, LIGHT).background, paint(level, DARK).background)


def _by_theme(name: str, light: str, dark: str) -> str:
    """A colour for each theme; browsers from before 2024 show the light one."""
    return f"{name}: {light}; {name}: light-dark({light}, {dark});"


def _ramp_rule(name: str, lowest: int) -> str:
    levels = range(lowest, STEPS + 1, 4)
    light = [paint(level, LIGHT).background for level in levels]
    dark = [paint(level, DARK).background for level in levels]
    both = [f"light-dark({pair[0]}, {pair[1]})" for pair in zip(light, dark, strict=True)]
    ramps = (f"background: linear-gradient(90deg, {', '.join(stops)});" for stops in (light, both))
    return f".alti .{name} {{ {' '.join(ramps)} }}"


def class_of(level: int) -> str:
    """The CSS class of a level: alti-f1 to alti-f20 for the label, alti-a1 to alti-a20 against."""
    return f"alti-{'f' if level > 0 else 'a'}{abs(level)}" if level else ""


STYLE = _style_sheet()  # what fragments need, as a style element or a separate file


def page(
    attributions: Shown,
    *,
    words: bool = True,
    title: str | None = None,
    theme: str | None = None,
    one_scale: bool = False,
) -> str:
    """A complete page. Consecutive attributions of the same text are stacked for comparison.

    Its content security policy allows its own stylesheet and nothing else. `theme` is light or
    dark; None follows the reader's settings. With `one_scale`, a method has the same scale in
    every text, so that texts can be compared.

    >>> page = alti.html.page([model.explain(text), model.explain(text, method="absence")])
    """
    if theme is not None and theme not in THEMES:
        raise UsageError(
            f"theme {theme!r} does not exist: choose light or dark, or None for the reader's own"
        )
    shown = sections(attributions)
    name = title or (_title(shown[0]) if len(shown) == 1 else f"{len(shown)} texts explained")
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return f"""<!doctype html>
<html lang="en"{f' data-theme="{theme}"' if theme else ""}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="{theme or "light dark"}">
<title>{escaped(name)}</title>
<style>{STYLE}</style>
</head>
<body class="alti-page">
<main>
{fragment(attributions, words=words, one_scale=one_scale)}
</main>
</body>
</html>
"""


def fragment(
    attributions: Shown, *, words: bool = True, one_scale: bool = False, below: str = ""
) -> str:
    """A section for each text, for a page that includes STYLE. It opens with words or tokens.

    `below` is HTML for the end of the section of a text.

    >>> page = f"<style>{alti.html.STYLE}</style>{alti.html.fragment(model.explain(text))}"
    """
    shown = sections(attributions)
    scales = _common(shown) if one_scale else {}
    return "\n".join(
        _answer(each, words)
        if isinstance(each, Attributions)
        else _section(each, words, below, scales=scales)
        for each in shown
    )


Scales = dict[tuple[str, bool], Scale]  # of a method, by words or by tokens


def _common(shown: list[Attributions | list[Attribution]]) -> Scales:
    """The scale of each method over all texts."""
    found: dict[tuple[str, bool], list[Scale]] = {}
    for attribution in chain.from_iterable(each for each in shown if isinstance(each, list)):
        for words in (True, False) if is_text(attribution.source) else ():
            scale = scale_of(attribution, passages(attribution, words=words))
            found.setdefault((method_of(attribution), words), []).append(scale)
    return {key: Scale.over(scales) for key, scales in found.items()}


def _title(shown: Attributions | list[Attribution]) -> str:
    group = [whole_answer(shown)] if isinstance(shown, Attributions) else shown
    parts = (label_of(group[0]), ", ".join(map(method_of, group)), group[0].model)
    return " · ".join(filter(None, parts))


def _section(
    group: list[Attribution], words: bool, below: str = "", scales: Scales | None = None
) -> str:
    """One text, explained once or several times, and what is to be said below it."""
    first = group[0]
    alone = len(group) == 1
    same_prediction = len({(each.label, chance_of(each)) for each in group}) == 1
    same_model = len({each.model for each in group}) == 1
    by = [
        method_of(first) if alone else "",
        unit_of(first) if alone else "",
        first.model if same_model else "",
        cut_note(first),
    ]
    rows = "\n".join(
        _row(
            each, scales or {}, named=not alone, predicted=not same_prediction, model=not same_model
        )
        for each in group
    )
    switch = _switch(words) if any(is_text(each.source) for each in group) else ""
    return f"""<section class="alti" aria-label="Explanation">
<header>
{_prediction(first) if same_prediction else ""}
{f'<p class="alti-by">{escaped(" · ".join(filter(None, by)))}</p>' if any(by) else ""}
{switch}
</header>
{rows}{below}{lens.html(group, escaped)}
</section>"""


def _switch(words: bool) -> str:
    checked = "" if words else " checked"
    return f'<label class="alti-switch"><input type="checkbox"{checked}>tokens</label>'


def _answer(attributions: Attributions, words: bool) -> str:
    """What a whole answer rests on in its prompt, then its tokens one by one."""
    if is_text(attributions.source):
        both = ((by_words(attributions), "words"), (attributions, "tokens"))
        tables = "\n".join(
            f'<div class="alti-{kind}">\n{_tokens(view)}\n</div>' for view, kind in both
        )
    else:
        tables = _tokens(attributions)
    said = lens.html(list(attributions), escaped)
    return _section([whole_answer(attributions)], words, f"\n{tables}{said}")


def _tokens(view: Attributions) -> str:
    """A row for each token of an answer: its probability and what it rests on most."""
    ranked = [strongest(each, MOST) for each in view]
    scale = Scale.of(each.score for row in ranked for each in row)
    rows = "\n".join(_token(each, row, scale) for each, row in zip(view, ranked, strict=True))
    own = any(each.answer for row in ranked for each in row)
    note = "<small>…: the answer so far</small>" if own else ""
    return f"""<div class="alti-wide"><table class="alti-answer">
<thead><tr><th scope="col">token</th><th scope="col">p</th>
<th scope="col" colspan="{MOST}">rests most on{note}</th></tr></thead>
<tbody>
{rows}
</tbody>
</table></div>"""


def _token(attribution: Attribution, ranked: list[Ranked], scale: Scale) -> str:
    cells = "".join(f"<td>{_ranked(each, scale)}</td>" for each in ranked)
    chance = probability_of(attribution.probability or 0.0)
    token = escaped(token_of(attribution).replace("\n", "␊"))
    return f'<tr><th scope="row" dir="auto">{token}</th><td>{chance}</td>{cells}</tr>'


def _ranked(each: Ranked, scale: Scale) -> str:
    """A word on the colour of its score, and the score."""
    typed, read = apart(each.name)
    name = escaped(("…" if each.answer else "") + shortened(typed, 24) + read)
    colour = class_of(scale.level(each.score))
    return f'<span class="{colour}" dir="auto">{name}</span>{number_on(scale, each.score)}'


def _prediction(attribution: Attribution) -> str:
    label = ""
    if attribution.label:
        label = f'<strong dir="auto">{escaped(label_of(attribution))}</strong>'
    chance = f"<span>{chance_of(attribution)}</span>" if chance_of(attribution) else ""
    return f'<p class="alti-says">{label}{chance}</p>' if label or chance else ""


def _row(
    attribution: Attribution, scales: Scales, *, named: bool, predicted: bool, model: bool
) -> str:
    """One explanation by words and by tokens, with its name, prediction and model if they vary."""
    small = [label_of(attribution), chance_of(attribution)] if predicted else []
    small += [attribution.model] if model else []
    below = f"<small>{escaped(' · '.join(filter(None, small)))}</small>" if any(small) else ""
    name = ""
    if named:
        name = f'<h3 class="alti-name">{escaped(method_of(attribution))}{below}</h3>\n'
    if is_text(attribution.source):
        method = method_of(attribution)
        views = text_views(attribution, {w: s for (name, w), s in scales.items() if name == method})
    else:
        views = _groups(attribution)
    return f'<div class="alti-row">\n{name}<div class="alti-view">\n{views}\n</div>\n</div>'


def _groups(attribution: Attribution) -> str:
    """A row for each group: its name, score, bar and text; the highest first if there are many."""
    scale = Scale.of(attribution.scores.tolist())
    rows = "\n".join(_group(attribution, i, scale) for i in order_of(attribution))
    unit = scale_name(attribution)
    left = _rest(notes(attribution, scale) + ([f"scores: {escaped(unit)}"] if unit else []))
    below = f'\n<p class="alti-legend">{left}</p>' if left else ""
    return f'<table class="alti-groups">\n<tbody>\n{rows}\n</tbody>\n</table>{below}'


def _group(attribution: Attribution, i: int, scale: Scale) -> str:
    score = float(attribution.scores[i])
    width = round(100 * abs(scale.share(score)))
    look = f"alti-bar alti-w{width} {class_of(STEPS if score > 0 else -STEPS)}"
    bar = f'<span class="{look}"></span>' if width else ""
    name = escaped(number_of(attribution.source, i))
    text = escaped(shortened(attribution.tokens[i], LONGEST))
    return (
        f'<tr><th scope="row">{name}</th><td>{number_on(scale, score)}</td><td>{bar}</td>'
        f'<td dir="auto">{text}</td></tr>'
    )


def text_views(attribution: Attribution, scales: dict[bool, Scale]) -> str:
    """The text by words and by tokens, one of which is shown; `scales` may be given for each."""
    return "\n".join(_view(attribution, scales.get(words), words=words) for words in (True, False))


def _view(attribution: Attribution, given: Scale | None, *, words: bool) -> str:
    label = side_of(attribution)
    shown = passages(attribution, words=words)
    scale = given or scale_of(attribution, shown)
    texts = "\n".join(_text(passage, scale, label) for passage in shown)
    left = _rest(notes(attribution, scale, words=words))
    kind = "words" if words else "tokens"
    legend = _legend(scale, label, left, scale_name(attribution))
    return f'<div class="alti-{kind}">\n{texts}\n{legend}\n</div>'


def _text(passage: list[Piece], scale: Scale, label: str) -> str:
    return f'<p class="alti-text" dir="auto" lang="">{"".join(_pieces(passage, scale, label))}</p>'


def _pieces(passage: list[Piece], scale: Scale, label: str) -> Iterator[str]:
    previous: Piece | None = None
    for piece in passage:
        joined = previous is not None and previous.score is not None and not previous.special
        if piece.score is None:
            text = escaped(piece.text)
            yield f'<span class="alti-cut">{text}</span>' if piece.text.strip() else text
        elif piece.special:
            yield _special(piece, scale)
        else:
            yield _scored(piece, scale, label, joined)
        previous = piece


def _scored(piece: Piece, scale: Scale, label: str, joined: bool) -> str:
    """A word or token, with its score and its tokens for pointers, keyboards and screen readers."""
    score = piece.score or 0.0
    level = scale.level(score)
    number = number_on(scale, score)
    tokens = " ".join(f"{token} {number_on(scale, score)}" for token, score in piece.tokens)
    classes = " ".join(filter(None, (class_of(level), "alti-on" if joined else "")))
    attributes = [f'class="{classes}"'] if classes else []
    if level:
        side = f" {'against' if level < 0 else 'for'} {label}" if scale.signed and label else ""
        read = f" read as {piece.unknown}" if piece.unknown else ""
        spoken = escaped(f"{piece.text}{read}, {number}{side}")
        attributes.append(f'tabindex="0" role="img" aria-label="{spoken}"')
    if piece.unknown:
        tokens = f"{tokens}: the model does not know this and read {piece.unknown}"
    attributes.append(f'data-score="{number}" title="{escaped(tokens)}"')
    return f"<span {' '.join(attributes)}>{escaped(piece.text)}{_unknown(piece)}</span>"


def _unknown(piece: Piece) -> str:
    """As what the model read something that it does not know; not copied with the text."""
    return f'<small class="alti-unknown">{escaped(piece.unknown)}</small>' if piece.unknown else ""


def _special(piece: Piece, scale: Scale) -> str:
    """A special token, uncoloured. One added to the text is drawn by CSS, so it is not copied."""
    token = escaped(" ".join(token for token, _ in piece.tokens))
    attributes = (
        f'data-score="{number_on(scale, piece.score or 0.0)}" title="{token}, a special token"'
    )
    if piece.text:
        return f'<span class="alti-special" {attributes}>{escaped(piece.text)}</span>'
    attributes = f'role="img" aria-label="{token}" data-token="{token}" {attributes}'
    return f'<span class="alti-special alti-added" {attributes}></span>'


def _rest(left: list[str]) -> str:
    """What is not on the text."""
    spans = []
    for note in left:
        title = f' title="{escaped(meaning)}"' if (meaning := meaning_of(note)) else ""
        spans.append(f'<span class="alti-rest"{title}>{note.replace("-", "−")}</span>')
    return "".join(spans)


def _legend(scale: Scale, label: str, rest: str, unit: str) -> str:
    """The ends of the scale, what its numbers are, and what is not on the text."""
    if not scale.largest:
        return f'<p class="alti-legend">every score is 0{rest}</p>'
    high = number_on(scale, scale.largest)
    if scale.signed:
        low = number_on(scale, -scale.largest)
        side = f"for {escaped(label)}" if label else "for"
        ramp = f'{low} against<span class="alti-ramp alti-both"></span>{side} {high}'
    else:
        ramp = f'0<span class="alti-ramp"></span>{high}'
    unit = unnamed(unit, label) if scale.signed else unit  # the ramp has it
    unit = f'<span class="alti-unit">{escaped(unit)}</span>' if unit else ""
    return f'<p class="alti-legend" aria-hidden="true">{ramp}{unit}{rest}</p>'


def number_on(scale: Scale, score: float) -> str:
    return scale.number(score).replace("-", "−")


def escaped(text: str) -> str:
    return escape(visible(text), quote=True)
