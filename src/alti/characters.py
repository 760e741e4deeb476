"""Control characters made visible: what a name or a text holds may not act on who reads it."""

_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"} | {0x7F: 0x2421}
_PICTURES |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)  # these have no picture of their own
_OVERRIDES = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)  # would reorder the whole line
_BREAKS = {0x2028: "\n", 0x2029: "\n", ord("\t"): "    ", ord("\r"): "␍"}


def visible(text: str) -> str:
    """The text with pictures in place of control characters, one for one: an escape is ␛ and does nothing."""
    return text.translate(_PICTURES)


def harmless(text: str) -> str:
    """The text as a terminal may print it: line breaks stay, nothing else moves, colours or reorders a line."""
    return visible(text.replace("\r\n", "\n")).translate(_OVERRIDES).translate(_BREAKS)


def plain(text: str) -> str:
    """A name, a token or a sentence on one line of a terminal."""
    return harmless(text).replace("\n", "␊")
