"""What texts look like in print: control characters are visible, nouns stand as many as they are.

No name or text can affect the reader's terminal.
"""

import sys

_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"}
_PICTURES |= {0x7F: 0x2421}
_PICTURES |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)  # Unicode has no pictures for these
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))  # would reorder the whole line
_OVERRIDES = dict.fromkeys(_DIRECTIONS, 0xFFFD)
_BREAKS = {0x2028: "\n", 0x2029: "\n", ord("\t"): "    ", ord("\r"): "␍"}


def visible(text: str) -> str:
    """The text with control characters replaced by their pictures: an escape becomes ␛."""
    return text.translate(_PICTURES)


def harmless(text: str) -> str:
    """The text made safe to print: line breaks are the only control characters left."""
    return visible(text.replace("\r\n", "\n")).translate(_OVERRIDES).translate(_BREAKS)


def plain(text: str) -> str:
    """The text made safe to print on a single line."""
    return harmless(text).replace("\n", "␊")


def note(message: object) -> None:
    """Print a status message to stderr, with control characters made visible."""
    print(f"alti: {plain(str(message))}", file=sys.stderr)


def plural(noun: str, count: int) -> str:
    """`text` or `texts`."""
    return noun if count == 1 else f"{noun}s"
