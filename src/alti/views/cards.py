"""What notebooks show: a card with layers for one result, a table for several; no scripts."""

from collections.abc import Sequence
from dataclasses import replace

from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.views.colours import Scale
from alti.views.html import (
    STYLE,
    class_of,
    escaped,
    fragment,
    number_on,
    text_views,
)
from alti.views.said import (
    Ranked,
    as_shown,
    by_words,
    chance_of,
    is_text,
    label_of,
    method_of,
    scale_name,
    shortened,
    side_of,
    strongest,
    unnamed,
    whole_answer,
    with_its_token,
)
from alti.views.segments import passages, scale_of

CELLS = 20_000  # layers × tokens of a card with layers, at most: each is an element of the page
TEXT = 80  # characters of a text in a table
MOST = 3  # words that a prediction rests on


class Card(str):
    """HTML that notebooks show as it is."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self)


def card(attribution: Attribution | Attributions) -> Card:
    """One result: its words or tokens, and what its prediction was mixed from at each layer."""
    if isinstance(attribution, Attributions) and attribution.source.answer is None:
        return table([attribution])
    layers = _layers(attribution) if isinstance(attribution, Attribution) else ""
    return Card(f"<style>{STYLE}</style>{fragment(attribution, below=layers)}")


def _layers(attribution: Attribution) -> str:
    """A choice of layers, and for each what is read there consists of; '' without maps."""
    maps = attribution.layers
    if maps is None or not is_text(attribution.source) or len(maps) * len(attribution) > CELLS:
        return ""
    views = [_after(attribution, layer) for layer in range(len(maps))]
    scales = {
        words: Scale.over(scale_of(view, passages(view, words=words)) for view in views)
        for words in (True, False)
    }
    rows = "\n".join(
        _layer(view, scales, number, last=number == len(views))
        for number, view in enumerate(views, start=1)
    )
    return f"""
<form><fieldset class="alti-layers"><legend>what is read, mixed from the input, after layer</legend>
{rows}
</fieldset></form>"""


def _after(attribution: Attribution, layer: int) -> Attribution:
    """What the token that is read consists of after a layer."""
    relevance = attribution.relevance(layer)
    position = attribution.position
    row = relevance.mean(0) if position is None else relevance[position]
    return replace(attribution, scores=row, layers=None)


def _layer(view: Attribution, scales: dict[bool, Scale], number: int, *, last: bool) -> str:
    """A radio button, and what it shows: CSS hides what is not chosen, and a form holds a group."""
    checked = " checked" if last else ""
    return (
        f'<label><input type="radio" name="layer"{checked}><span>{number}</span></label>\n'
        f'<div class="alti-layer">\n{text_views(view, scales)}\n</div>'
    )


def table(results: Sequence[Attribution | Attributions]) -> Card:
    """A row for each of several results: its text, its prediction and what this rests on most.

    >>> alti.cards.table([model.explain("A clever film."), model.explain("A dull film.")])
    """
    flat = [one for each in results for one in _each(each)]
    names = {_by(one) for one in flat}
    several = len(names) > 1
    scales = _scales(flat)
    rows = "\n".join(_row(one, scales[method_of(one)], named=several) for one in flat)
    by = names.pop() if len(names) == 1 else ""
    caption = f"{len(flat)} results" + (f" · {escaped(by)}" if by else "")
    head = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("text", "prediction", "p", *(["by"] if not by else []), "rests most on")
    )
    return Card(f"""<style>{STYLE}</style><section class="alti" aria-label="Explanations">
<div class="alti-wide"><table class="alti-answer alti-results"><caption>{caption}</caption>
<thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table></div>
</section>""")


def _by(result: Attribution) -> str:
    """The method, the model, and what the scores are."""
    unit = unnamed(scale_name(result), side_of(result))
    return " · ".join(filter(None, (method_of(result), result.model, unit)))


def _each(result: Attribution | Attributions) -> list[Attribution]:
    """One row for a prediction or an answer, several for several predictions."""
    if isinstance(result, Attribution):
        return [as_shown(result)]
    if result.source.answer is None:
        return list(map(with_its_token, result))
    return [whole_answer(result)]


def _scales(results: list[Attribution]) -> dict[str, Scale]:
    """The scale of each method over all rows."""
    scores: dict[str, list[float]] = {}
    for result in results:
        ranked = strongest(by_words(result), MOST)
        scores.setdefault(method_of(result), []).extend(each.score for each in ranked)
    return {method: Scale.of(own) for method, own in scores.items()}


def _row(result: Attribution, scale: Scale, *, named: bool) -> str:
    by = f'<td class="alti-by">{escaped(_by(result))}</td>' if named else ""
    view = by_words(result)
    best = "".join(_ranked(each, scale) for each in strongest(view, MOST))
    text = escaped(shortened(" / ".join(result.source.texts), TEXT))
    chance = escaped(chance_of(result).removeprefix("p = "))
    return (
        f'<tr><td dir="auto">{text}</td><th scope="row" dir="auto">{escaped(label_of(result))}</th>'
        f"<td>{chance}</td>{by}<td>{best}</td></tr>"
    )


def _ranked(each: Ranked, scale: Scale) -> str:
    """A word on the colour of its score, and the score."""
    name = escaped(shortened(each.name, 24))
    colour = class_of(scale.level(each.score))
    word = f'<span class="{colour}" dir="auto">{name}</span>'
    return f'<bdi class="alti-pair">{word}{number_on(scale, each.score)} </bdi> '
