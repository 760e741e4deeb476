"""What a model would have said after each layer, for terminals, HTML and LaTeX."""

from collections.abc import Callable, Iterator, Sequence

from alti._characters import plain
from alti.model.attribution import Attribution
from alti.model.lens import Lens
from alti.views.said import probability_of, shortened, token_of
from alti.views.screen import BOLD, DIM, Style, cells, clipped, padded

TITLE = "what the model would have said after each layer"
WIDEST = 14  # columns of a token
STEPS = 4  # layers whose likeliest token stands in the line of one prediction
Escape = Callable[[str], str]


def shown_token(token: str) -> str:
    """A token whose spaces and line breaks can be seen where there is nothing else."""
    text = token if token.strip(" ") else token.replace(" ", "␣")
    return text.replace("\n", "↵")


def said(lens: Lens, layer: int, most: int) -> Iterator[tuple[str, str, bool]]:
    """The likeliest tokens after a layer: token, probability, and whether the model said it."""
    final = lens.ids[-1][0]
    rows = zip(lens.tokens[layer], lens.probabilities[layer], lens.ids[layer], strict=True)
    for token, chance, number in list(rows)[:most]:
        yield shown_token(token), probability_of(chance), number == final


def settled_at(lens: Lens) -> str:
    """From which layer on the explained output is the likeliest, in words; layers count from 1."""
    if lens.settled == len(lens):
        return f"not the likeliest after layer {len(lens)}"
    return f"the likeliest from layer {lens.settled + 1} of {len(lens)} on"


def terminal(attribution: Attribution, style: Style) -> list[str]:
    """A line for each layer: what would have been said, the likeliest first."""
    lens = attribution.lens
    if lens is None:
        return []
    first = len(str(len(lens)))
    room = max(1, (style.width - first - 16) // (WIDEST + 8))
    lines = ["", f"  {style.set(TITLE, DIM)}"]
    for layer in range(len(lens)):
        chance = f"{probability_of(lens.own[layer]):>5} · "
        parts = [
            f"{style.set(name, BOLD) if final else name}{' ' * (WIDEST - cells(name))} {number:>5}"
            for name, number, final in (
                (clipped(plain(token), WIDEST), number, final)
                for token, number, final in said(lens, layer, room)
            )
        ]
        lines.append(f"  {layer + 1:>{first}}  {style.set(chance, DIM)}{'  '.join(parts)}")
    note = f"the number in front is p of {plain(shown_token(attribution.label or ''))!r}: "
    return [*lines, f"  {style.set(note + settled_at(lens), DIM)}"]


def terminal_of_several(attributions: Sequence[Attribution], style: Style) -> list[str]:
    """A line for each prediction: from which layer on it is the likeliest, and what was before."""
    if not attributions or attributions[0].lens is None:
        return []
    count = len(attributions[0].lens)
    names = [clipped(plain(shown_token(each.label or "")), WIDEST) for each in attributions]
    first = max(cells("token"), *map(cells, names))
    steps = max(1, min(STEPS, (style.width - first - 16) // (WIDEST + 8)))
    layers = sorted({round((count - 1) * step / steps) for step in range(steps)})
    heads = "  ".join(padded(f"after {layer + 1}", WIDEST + 6) for layer in layers)
    above = f"{padded('token', first)}  stays from  {heads}".rstrip()
    lines = ["", f"  {style.set(TITLE, DIM)}", f"  {style.set(above, DIM)}"]
    for name, each in zip(names, attributions, strict=True):
        lens = each.lens
        assert lens is not None
        since = f"layer {lens.settled + 1}" if lens.settled < count else "never"
        best = (next(said(lens, layer, 1)) for layer in layers)
        cut = ((clipped(plain(token), WIDEST), number) for token, number, _ in best)
        before = "  ".join(f"{padded(token, WIDEST)} {number:>5}" for token, number in cut)
        lines.append(
            f"  {style.set(name, BOLD)}{' ' * (first - cells(name))}  {since:<10}  {before}"
        )
    return lines


def html(attributions: Sequence[Attribution], escaped: Escape) -> str:
    """A table for each prediction, folded."""
    tables = [_html_table(each, escaped) for each in attributions if each.lens is not None]
    return "\n".join(tables)


def _html_table(attribution: Attribution, escaped: Escape) -> str:
    lens = attribution.lens
    assert lens is not None
    label = shown_token(token_of(attribution))
    rows = "\n".join(_html_row(lens, layer, escaped) for layer in range(len(lens)))
    most = max(map(len, lens.tokens))
    about = f"{TITLE}: {label!r} is {settled_at(lens)}"
    return f"""<details class="alti-lens"><summary>{escaped(about)}</summary>
<div class="alti-wide"><table class="alti-answer">
<thead><tr><th scope="col">layer</th><th scope="col">p of {escaped(repr(label))}</th>
<th scope="col" colspan="{most}">likeliest tokens</th></tr></thead>
<tbody>
{rows}
</tbody>
</table></div></details>"""


def _html_row(lens: Lens, layer: int, escaped: Escape) -> str:
    cells_of = "".join(
        f'<td><span dir="auto">{_bold(escaped(token), final)}</span>{number}</td>'
        for token, number, final in said(lens, layer, len(lens.tokens[layer]))
    )
    own = probability_of(lens.own[layer])
    return f'<tr><th scope="row">{layer + 1}</th><td>{own}</td>{cells_of}</tr>'


def _bold(token: str, final: bool) -> str:
    return f"<b>{token}</b>" if final else token


def latex(attribution: Attribution, escaped: Escape) -> list[tuple[str, str]]:
    """Rows of two cells: the layer, and what would have been said."""
    lens = attribution.lens
    if lens is None:
        return []
    label = escaped(shortened(shown_token(attribution.label or ""), 40))
    head = f"{escaped(TITLE)}; {label} is {escaped(settled_at(lens))}"
    rows = [("", rf"{{\footnotesize\color{{gray}}{head}}}")]
    for layer in range(len(lens)):
        parts = [
            (rf"\textbf{{{escaped(token)}}}" if final else escaped(token)) + f" {escaped(number)}"
            for token, number, final in said(lens, layer, 3)
        ]
        rows.append((f"layer {layer + 1}", r" \quad ".join(parts)))
    return rows
