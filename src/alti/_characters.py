"""Control characters made visible: what a name or a text holds may not act on who reads it."""

import sys

_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"}
_PICTURES |= {0x7F: 0x2421}
_PICTURES |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)  # these have no picture of their own
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))  # would reorder the whole line
_OVERRIDES = dict.fromkeys(_DIRECTIONS, 0xFFFD)
_BREAKS = {0x2028: "\n", 0x2029: "\n", ord("\t"): "    ", ord("\r"): "␍"}


def visible(text: str) -> str:
    """The text with a picture for each control character: an escape is ␛ and does nothing."""
    return text.translate(_PICTURES)


def harmless(text: str) -> str:
    """The text as a terminal may print it: nothing but a line break acts on it."""
    return visible(text.replace("\r\n", "\n")).translate(_OVERRIDES).translate(_BREAKS)


def plain(text: str) -> str:
    """A name, a token or a sentence on one line of a terminal."""
    return harmless(text).replace("\n", "␊")


def note(message: object) -> None:
    """Print a line of talk on stderr, whatever the names in it hold."""
    print(f"alti: {plain(str(message))}", file=sys.stderr)
