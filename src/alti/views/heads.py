"""The heads of one layer in a terminal: small maps beside each other, and one token's row."""

from torch import Tensor

from alti._characters import plain
from alti.model.head_maps import HeadMaps
from alti.views.colours import STEPS
from alti.views.said import name_of
from alti.views.screen import BOLD, DIM, Style, clipped_name, padded

SHADES = "·░▒▓█"
LARGEST = 40  # tokens of a text whose maps are drawn
MOST = 3  # tokens that a head is said to bring
NAME = 16  # columns of a token
NUMBERS = 22  # columns before the first token


def render(
    maps: HeadMaps,
    *,
    position: int | None = None,
    attention: bool = False,
    style: Style | None = None,
) -> str:
    """A map of each head where the text is short, then what each head brings to one token."""
    style = style or Style.here()
    values = maps.attention if attention else maps.contributions
    what = "attention" if attention else "contributions"
    largest = float(values.max())
    head = f"layer {maps.layer + 1} · {len(maps)} heads · {what} from 0 (·) to {largest:.3f}"
    lines = [" · ".join(filter(None, (style.set(head, BOLD), plain(maps.model))))]
    if max(values.shape[1:]) <= LARGEST:
        lines += _small_multiples(values, style)
    row = len(maps.rows) - 1 if position is None else maps.row_of(position)
    return "\n".join([*lines, "", *_row(maps, values, row, style, attention)])


def _small_multiples(values: Tensor, style: Style) -> list[str]:
    """Maps beside each other, as many as fit, on one scale."""
    largest = float(values.max()) or 1.0
    width = values.shape[2]
    each = max(width, 7)
    across = max(1, (style.width - 2 + 3) // (each + 3))
    lines = []
    for start in range(0, len(values), across):
        numbers = range(start, min(start + across, len(values)))
        titles = [style.set(padded(f"head {number + 1}", each), DIM) for number in numbers]
        lines += ["", f"  {'   '.join(titles)}".rstrip()]
        for row in range(values.shape[1]):
            parts = [
                _shaded(values[number, row] / largest, style) + " " * (each - width)
                for number in numbers
            ]
            lines.append(f"  {'   '.join(parts)}".rstrip())
    return lines


def _shaded(row: Tensor, style: Style) -> str:
    """A row of a map: a cell for each token, as dark as the root of its share."""
    shares = row.clamp_min(0).sqrt().tolist()
    if style.colours:
        levels = [round(share * STEPS) for share in shares]
        return "".join(style.painted(" ", level) if level else "·" for level in levels)
    return "".join(SHADES[round(share * (len(SHADES) - 1))] for share in shares)


def _row(maps: HeadMaps, values: Tensor, row: int, style: Style, attention: bool) -> list[str]:
    """What each head brings to one token, and of which tokens most of it is."""
    token = plain(name_of(maps.source, maps.rows[row]))
    what = "attends to" if attention else "brings"
    lines = [f"  {style.set(f'what each head {what}, for {token!r} ({maps.rows[row]})', DIM)}"]
    shares = maps.contributions[:, row].sum(-1).tolist()
    fitting = max(1, (style.width - NUMBERS) // (NAME + 8))  # a number and spaces behind a token
    for head, share in enumerate(shares):
        best = values[head, row].topk(min(MOST, fitting, values.shape[2]))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        names = [(plain(name_of(maps.source, maps.columns[i])), value) for i, value in pairs]
        found = "  ".join(
            f"{padded(clipped_name(name, NAME), NAME)} {value:.3f}" for name, value in names
        )
        lines.append(f"  head {head + 1:>2}  {share:.3f} of it  {found}")
    own = float(maps.residual[row])
    lines.append(f"  {style.set(f'no head  {own:.3f} of it  what the token was before', DIM)}")
    return lines
