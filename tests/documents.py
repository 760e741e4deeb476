"""Code and tables of the documents, and stand-ins for the models and files that they name."""

import json
import re
import shlex
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from transformers import AutoTokenizer, GenerationConfig

import tiny

ROOT = Path(__file__).parents[1]
DOCS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
PAGES = ["README.md", "CONTRIBUTING.md", "reproduction/README.md", *DOCS]
LANGUAGES = ("python", "console", "bash", "text")  # of a fence; text is what is printed, or drawn
PROGRAMS = ("alti", "curl", "make", "pip", "python", "apt-get")
NOT_RUN = "# not run in the tests: "  # the first line of such a block, for all readers to see
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(rf"(?:\$ )?((?:[A-Z_]+=\S+ )*)({'|'.join(PROGRAMS)}) (.*)")


@dataclass(frozen=True)
class Block:
    """A piece of code of a page."""

    page: str
    language: str  # "indented" for one without fence: commands of measurements
    code: str

    @property
    def is_run(self) -> bool:
        return not self.code.startswith(NOT_RUN)

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Its commands: a program with its arguments, without the comment behind them."""
        for line in self.code.replace("\\\n", " ").splitlines():
            match = COMMAND.fullmatch(line.strip())
            prompted = line.startswith("$ ")
            if match and (self.language != "console" or prompted):
                yield match[2], shlex.split(match[3], comments=True)


def fences(page: str) -> list[Block]:
    found = FENCE.findall((ROOT / page).read_text(encoding="utf-8"))
    return [Block(page, language, code) for _, language, code in found]


def indented(page: str) -> list[Block]:
    text = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    return [
        Block(page, "indented", re.sub(r"^ {4}", "", code, flags=re.MULTILINE))
        for code in re.findall(r"(?:^ {4}.*\n)+", text, re.MULTILINE)
    ]


def models(folder: Path) -> dict[str, Path]:
    """A tiny model for each kind that the documents load.

    One writes, one translates, one hears, one finds persons, and one reads.
    """
    special = [" Paris", " London"]
    room = {"vocab_size": len(tiny.tokenizer()) + len(special)}
    writer = tiny.saved(folder / "writer", "gpt2", "AutoModelForCausalLM", n_positions=400, **room)
    tokenizer = AutoTokenizer.from_pretrained(writer)
    tokenizer.add_tokens(special)
    tokenizer.chat_template = "{% for m in messages %}[CLS]{{ m['content'] }}[SEP]{% endfor %}"
    tokenizer.save_pretrained(writer)
    # it must not end an answer before the token that a page looks at
    GenerationConfig(eos_token_id=3, pad_token_id=0, min_new_tokens=6).save_pretrained(writer)
    translator = tiny.saved(folder / "translator", "t5", "AutoModelForSeq2SeqLM")
    reader = tiny.saved(folder / "reader", num_hidden_layers=4, max_position_embeddings=128)
    others = {"t5": translator, "whisper": _hearing(folder), "tagger": _tagger(folder)}
    return {"SmolLM2": writer, **others, "": reader}


def _hearing(folder: Path) -> Path:
    """It hears one second."""
    sizes = {"vocab_size": len(tiny.tokenizer()), "max_source_positions": 50}
    own = {**sizes, "decoder_start_token_id": 0, "dtype": torch.float32}
    tiny.build("whisper", "AutoModelForSpeechSeq2Seq", **own).save_pretrained(folder / "hearing")
    tiny.tokenizer().save_pretrained(folder / "hearing")
    return folder / "hearing"


def _tagger(folder: Path) -> Path:
    """To it, every word is a person."""
    labels = {"id2label": {0: "O", 1: "B-PER"}, "num_labels": 2, "dtype": torch.float32}
    model = tiny.speaking("bert", "AutoModelForTokenClassification", **labels)
    with torch.no_grad():
        model.classifier.bias += torch.tensor([-10.0, 10.0])
    model.save_pretrained(folder / "tagger")
    tiny.tokenizer().save_pretrained(folder / "tagger")
    return folder / "tagger"


def stand_in(name: str, folders: dict[str, Path]) -> str:
    """The folder of the tiny model that takes the place of a name."""
    return str(next(folder for part, folder in folders.items() if part in name))


def write_files(folder: Path) -> None:
    """The files that the commands of the documents read."""
    texts = ("A clever film.", "A dull plot.", "The acting is better.", "A long and clumsy ending.")
    for name, text in {
        "texts.txt": "\n".join(texts),
        "eiffel.txt": "The Eiffel Tower was finished in 1889. It stands in Paris.",
        "ben.txt": "Big Ben is the name of a bell in London.",
        "liberty.txt": "The Statue of Liberty stands in New York.",
        "chat.json": json.dumps([{"role": "user", "content": "Name a city in France."}]),
    }.items():
        (folder / name).write_text(text)
    with wave.open(str(folder / "speech.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(bytes(range(200)) * 80)
    rows = [
        {"text": text, "label": number % 2, "split": split}
        for split in ("train", "validation")
        for number, text in enumerate(texts)
    ]
    documents = [(folder / name).read_text() for name in ("eiffel.txt", "ben.txt", "liberty.txt")]
    question = {"question": "When was it finished?", "documents": documents, "gold": 0}
    pairs = [{"de": f"Der Hund sieht {n} Katzen .", "en": f"The dog sees {n} cats ."}
             for n in range(70)]  # fmt: skip
    many = [{"text": f"Film number {number} is rather clumsy."} for number in range(20)]
    gold = {"source": "The plot is clumsy", "target": "A bad film", "sure": "0-0 1-2"}
    _write(folder / "sst2.parquet", rows)
    _write(folder / "reviews.jsonl", rows)
    _write(folder / "texts.jsonl", [*many, {"text": ""}])
    _write(folder / "questions.parquet", [{**question, "answer": "In 1889"}])
    _write(folder / "pairs.jsonl", pairs)
    _write(folder / "gold.jsonl", [gold])


def _write(file: Path, rows: list[dict]) -> None:
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def printed(page, start):
    """The cells of the first table after some words of a page of the docs, by method."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    lines = text[text.index(start) :].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|---"))
    rows = {}
    for line in lines[first + 1 :]:
        if not line.startswith("|"):
            return rows
        name, *cells = (cell.strip(" `*") for cell in line.strip("|").split("|"))
        rows[name] = cells
    return rows


def same(cell, numbers):
    """Whether a cell shows numbers, rounded as it rounds them."""
    shown = re.findall(r"-?\d+(?:\.\d+)?", cell.replace("−", "-"))
    halves = [0.5 * 10.0 ** -len(number.partition(".")[2]) + 1e-9 for number in shown]
    return len(shown) == len(numbers) and all(
        abs(float(a) - b) <= half for a, b, half in zip(shown, numbers, halves, strict=True)
    )
