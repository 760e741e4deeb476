"""The lines that a terminal shows of one attribution: a headline, coloured text, bars, groups."""

from dataclasses import replace

from alti._characters import plain
from alti.model.attribution import Attribution
from alti.views.colours import STEPS, Scale
from alti.views.said import (
    by_words,
    chance_of,
    cut_note,
    is_text,
    label_of,
    method_of,
    name_of,
    notes,
    number_of,
    order_of,
    scale_name,
    side_of,
    unit_of,
)
from alti.views.screen import BOLD, DIM, Style, cells, clipped, padded, paragraphs
from alti.views.segments import passages, scale_of

LINES = 40  # of the bar view
FEWER = 20  # of it where an answer follows, token by token
SHORTEST = 24  # columns of an answer in a headline
BAR = 24  # columns of the longest bar
NAME = 20  # the most columns for a group's name
LEAST = 12  # the fewest columns in which a group's text is worth showing


def headline(attribution: Attribution, style: Style, *, method: bool = True) -> str:
    """What was predicted, and by which method and model."""
    chance = chance_of(attribution)
    chance = f"({chance})" if chance.startswith(("p", "log")) else chance
    parts = [
        chance,
        plain(method_of(attribution)) if method else "",
        unit_of(attribution) if method else "",
        plain(attribution.model),
        cut_note(attribution),
    ]
    rest = " · ".join(filter(None, parts))
    label = plain(label_of(attribution))
    if "answer" in attribution.extra:
        room = max(SHORTEST, style.width - cells(rest) - 1)
        label = label if cells(label) <= room else f"{clipped(label[:-1], room - 1)}”"
    gap = " " if chance else " · "
    return gap.join(filter(None, (style.set(label, BOLD), rest)))


def prediction(attribution: Attribution, style: Style) -> str:
    """What was predicted alone."""
    return headline(replace(attribution, model=""), style, method=False)


def body(attribution: Attribution, style: Style, *, words: bool, bars: bool) -> list[str]:
    """Everything below the headline, indented by two columns."""
    if not is_text(attribution.source):
        lines = groups(attribution, style)
    elif bars or not style.colours:
        lines = bar_lines(attribution, style, words)
    else:
        lines = ["", *_coloured(attribution, style, words)]
    return [f"  {line}".rstrip() for line in lines]


def _coloured(attribution: Attribution, style: Style, words: bool) -> list[str]:
    """The text on coloured backgrounds, the colours' meaning, and what is not on the text."""
    shown = passages(attribution, words=words)
    scale = scale_of(attribution, shown)
    lines = paragraphs(shown, scale, style, style.width - 2)
    while lines and not lines[-1]:  # a prompt often ends with line breaks
        lines.pop()
    lines += ["", scale_legend(attribution, scale, style)]
    return lines + below(attribution, scale, style, words)


def below(attribution: Attribution, scale: Scale, style: Style, words: bool = True) -> list[str]:
    """What the scores are of, and what is not on the text."""
    unit = scale_name(attribution)
    said = notes(attribution, scale, words=words) + ([f"scores: {plain(unit)}"] if unit else [])
    return [style.set(note, DIM) for note in said]


def scale_legend(attribution: Attribution, scale: Scale, style: Style) -> str:
    if not scale.largest:
        return style.set("every score is 0", DIM)
    high = scale.number(scale.largest)
    if not scale.signed:
        return legend("0", high, False, style)
    low = scale.number(-scale.largest)
    return legend(f"{low} against", f"{for_label(attribution)} {high}", True, style)


def legend(left: str, right: str, signed: bool, style: Style) -> str:
    """The colour ramp between two ends."""
    levels = range(-STEPS if signed else 4, STEPS + 1, 4)
    room = style.width - cells(left) - cells(right) - 4
    step = "  " if 2 * len(levels) <= room else " "
    ramp = "".join(style.painted(step, level) for level in levels)
    return f"{style.set(left, DIM)} {ramp} {style.set(right, DIM)}"


def for_label(attribution: Attribution) -> str:
    return f"for {plain(side_of(attribution))}".rstrip()


def bar_lines(attribution: Attribution, style: Style, words: bool) -> list[str]:
    """Each word (or token) with a bar; only the highest scores if there are many."""
    view = by_words(attribution, words)
    most = FEWER if "answer" in attribution.extra else LINES
    order = range(len(view)) if len(view) <= LINES else _best(view, most)
    shown = [(name_of(view.source, i), float(view.scores[i])) for i in order]
    scale = Scale.of(score for _, score in shown)
    width = max((cells(plain(word)) for word, _ in shown), default=0)
    lines = [
        f"{padded(plain(word), width)}  {scale.number(score)}  {_bar(scale, score, style)}"
        for word, score in shown
    ]
    if len(shown) < len(view):
        lines.append(f"… and {len(view) - len(shown)} more")
    return lines + below(attribution, scale, style, words)


def _best(view: Attribution, most: int) -> list[int]:
    """The highest scores; special tokens are not ranked."""
    order: list[int] = view.scores.argsort(descending=True, stable=True).tolist()
    return [i for i in order if not view.special[i]][:most]


def groups(attribution: Attribution, style: Style) -> list[str]:
    """A line for each group: its name, score, bar and text; the highest first if there are many."""
    order = order_of(attribution)[:LINES]
    scale = Scale.of(attribution.scores.tolist())
    names = [clipped(plain(number_of(attribution.source, i)), NAME) for i in order]
    numbers = [scale.number(float(attribution.scores[i])) for i in order]
    first = max(map(cells, names), default=0)
    second = max(map(len, numbers), default=0)
    longest = BAR // 2 if style.width < 100 else BAR
    room = style.width - first - second - longest - 8
    lines = []
    for i, name, number in zip(order, names, numbers, strict=True):
        bar = _bar(scale, float(attribution.scores[i]), style, longest, pad=True)
        text = clipped(plain(" ".join(attribution.tokens[i].split())), room)
        numbered = name.rjust(first) if name.isdecimal() else padded(name, first)
        lines.append(f"{numbered}  {number:>{second}}  {bar}  {text if room >= LEAST else ''}")
    if len(order) < len(attribution):
        lines.append(f"… and {len(attribution) - len(order)} more")
    return lines + below(attribution, scale, style)


def _bar(scale: Scale, score: float, style: Style, longest: int = BAR, *, pad: bool = False) -> str:
    """A bar of up to `longest` columns, in the colour of its side."""
    bar = _blocks(scale.share(score), longest)
    spaces = " " * (longest - len(bar)) if pad else ""
    return (style.drawn(bar, STEPS if score > 0 else -STEPS) if bar else "") + spaces


def _blocks(share: float, longest: int) -> str:
    """A bar in eighths of a column; grey if it is negative."""
    eighths = round(abs(share) * longest * 8)
    if share < 0:
        return "▒" * -(-eighths // 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
