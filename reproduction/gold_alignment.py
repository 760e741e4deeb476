"""A language whose translation is known, word by word: text to train on, and its gold alignment.

    python -m reproduction.gold_alignment FOLDER

writes train.jsonl, validation.jsonl and test.jsonl. A clause of the source has two to six units and
ends in a verb. In the target the verb comes second; nouns and adjectives change places; two words
of the source that belong together are one word of the target, which depends on both.
"""

import json
import random
import sys
from pathlib import Path

VERBS = [f"ver{letter}" for letter in "abdefgikmo"]
PLAIN = [f"pla{letter}" for letter in "abdefgikmo"]
NOUNS = [f"nou{letter}" for letter in "abdefgikmo"]
ADJECTIVES = [f"adj{letter}" for letter in "abdefgikmo"]
FIRST = [f"fir{letter}" for letter in "abdefg"]
SECOND = [f"sec{letter}" for letter in "abdefg"]
SIZES = {"train": 24000, "validation": 500, "test": 500}

Links = list[tuple[int, int]]


def sentence(chance: random.Random) -> tuple[list[str], list[str], Links]:
    """A clause, its translation, and which word comes from which."""
    source: list[str] = []
    units: list[list[tuple[str, list[int]]]] = []  # of the target: words with their source words
    for _ in range(chance.randint(2, 6)):
        units.append(_unit(chance, source))
    verb = chance.choice(VERBS)
    units.insert(1, [(verb.upper(), [len(source)])])
    source.append(verb)
    target = [word for unit in units for word in unit]
    links = [(i, j) for j, (_, own) in enumerate(target) for i in own]
    return source, [word for word, _ in target], sorted(links)


def _unit(chance: random.Random, source: list[str]) -> list[tuple[str, list[int]]]:
    """Append one unit to the source and return what it becomes."""
    at = len(source)
    kind = chance.choice(("plain", "swapped", "joined"))
    if kind == "plain":
        source.append(chance.choice(PLAIN))
        return [(source[at].upper(), [at])]
    if kind == "swapped":
        source += [chance.choice(NOUNS), chance.choice(ADJECTIVES)]
        return [(source[at + 1].upper(), [at + 1]), (source[at].upper(), [at])]
    source += [chance.choice(FIRST), chance.choice(SECOND)]
    return [(f"JO{source[at][-1]}{source[at + 1][-1]}".upper(), [at, at + 1])]


def rows(split: str, count: int) -> list[dict[str, str]]:
    chance = random.Random(split)
    made = []
    for _ in range(count):
        source, target, links = sentence(chance)
        pairs = " ".join(f"{i}-{j}" for i, j in links)
        made.append({"source": " ".join(source), "target": " ".join(target), "sure": pairs})
    return made


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in SIZES.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows(split, count))
        (folder / f"{split}.jsonl").write_text(lines)


if __name__ == "__main__":
    main()
