"""Counts the families for the README: `python examples/families.py` writes the number into it."""

import re
from pathlib import Path

import alti

README = Path(__file__).parents[1] / "README.md"
COUNT = re.compile(r"(?<=related methods for )\d+(?= families)")


def counted(text: str) -> str:
    """The text with the number of families that are in alti.FAMILIES now."""
    changed, places = COUNT.subn(str(len(alti.FAMILIES)), text)
    if places != 1:
        raise SystemExit(f"README.md names the number of families {places} times, not once")
    return changed


if __name__ == "__main__":
    README.write_text(counted(README.read_text()))
