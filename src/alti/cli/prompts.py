"""What `explain` and `compare` are asked about: a text, a chat, documents, and an answer."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alti._errors import LoadError, UsageError
from alti.cli.console import late_bar
from alti.cli.sounds import sound

if TYPE_CHECKING:
    from alti import Model

ENTITIES = "entities"
Answer = Annotated[
    str | None, typer.Option(help="Explain this continuation of the text, token by token.")
]
Generate = Annotated[
    int | None, typer.Option(help="Let the model write so many tokens, and explain them.")
]
Temperature = Annotated[
    float | None, typer.Option(help="With --generate: draw tokens instead of the likeliest.")
]
Seed = Annotated[int, typer.Option(help="With --temperature: of the draws.")]
Documents = Annotated[
    list[Path] | None,
    typer.Option("--document", help="A text file that the question is about; may be repeated."),
]
Choices = Annotated[
    list[str] | None,
    typer.Option("--choice", help="What a multiple-choice model chooses from; repeat it."),
]
ChatFile = Annotated[
    Path | None, typer.Option("--chat", help="A JSON file: a list of messages instead of a TEXT.")
]
Group = Annotated[
    str | None,
    typer.Option(help="Score these instead of tokens: word, sentence, line, message or document."),
]
Positions = Annotated[
    str | None,
    typer.Option(
        help="Explain the predictions at several tokens: all, numbers like 3,4, or the entities "
        "that a token classifier finds: entities."
    ),
]
Total = Annotated[bool, typer.Option("--total", help="Explain the whole answer as one.")]
NoBos = Annotated[
    bool, typer.Option("--no-bos", help="Put no first token in front of a language model's text.")
]


@dataclass(frozen=True, slots=True)
class Asked:
    """The options that say what is explained."""

    text: str | None
    pair: str | None = None
    answer: str | None = None
    generate: int | None = None
    temperature: float | None = None
    seed: int = 0
    documents: list[Path] | None = None
    chat: Path | None = None
    choices: list[str] | None = None
    audio: Path | None = None
    positions: str | None = None

    def __post_init__(self) -> None:
        if self.temperature is not None and self.generate is None:
            raise UsageError("--temperature says how to write: give --generate N too")
        if self.temperature is not None and self.temperature <= 0:
            raise UsageError(f"--temperature {self.temperature} is not above 0: leave it out")
        if self.generate is not None and self.generate < 1:
            raise UsageError(
                f"--generate {self.generate} is not a number of tokens: give 1 or more"
            )

    @property
    def has_answer(self) -> bool:
        return self.answer is not None or self.generate is not None

    @property
    def of_lines(self) -> dict[str, Any]:
        """What is said about each text of many."""
        return {"answer": self.answer, "generate": self.generation}

    @contextmanager
    def arguments(self) -> Iterator[dict[str, Any]]:
        """The arguments of `Model.explain`; a bar shows what has been written."""
        with self.writing() as generate:
            yield {
                "text": self.text if self.chat is None else _chat(self.chat),
                "text_pair": self.pair,
                "documents": [_document(file) for file in self.documents or []] or None,
                "choices": self.choices or None,
                "answer": self.answer,
                "generate": generate,
                **({} if self.audio is None else sound(self.audio)),
                **({} if self.positions is None else {"positions": _positions(self.positions)}),
            }

    def checked(self, model: "Model") -> "Model":
        """The same model; what it has not is refused."""
        if self.positions == ENTITIES and model.head.kind not in ("token", "sequence"):
            raise UsageError(
                f"--positions entities are those of a token classifier, and {model.name} is none: "
                "give all, or numbers like 3,4"
            )
        return model

    def chosen(self, result: Any) -> Any:
        """What is shown of a result: the entities alone, if they were asked for."""
        if self.positions != ENTITIES:
            return result
        if not hasattr(result, "entities"):
            raise UsageError("--positions entities explains each of them: leave --total out")
        return result.entities()

    @contextmanager
    def writing(self) -> Iterator[dict[str, Any] | None]:
        """How an answer is generated."""
        options = self.generation
        if options is None or self.generate is None:
            yield None
            return
        with late_bar("tokens") as update:
            yield {**options, "streamer": _Written(update, self.generate)}

    @property
    def generation(self) -> dict[str, Any] | None:
        """The options of how an answer is generated."""
        if self.generate is None:
            return None
        options: dict[str, Any] = {"max_new_tokens": self.generate, "seed": self.seed}
        if self.temperature is not None:
            options |= {"do_sample": True, "temperature": self.temperature}
        return options


def _positions(given: str) -> Any:
    """`all`, or the numbers of tokens."""
    if given in ("all", ENTITIES):
        return "all"
    try:
        return [int(number) for number in given.split(",")]
    except ValueError:
        raise UsageError(
            f"--positions {given} names no tokens: give all, entities, or numbers like 3,4"
        ) from None


class _Written:
    """Counts the tokens that a model writes; transformers calls it a streamer."""

    def __init__(self, update: Any, total: int) -> None:
        self.update = update
        self.total = total
        self.done = -1  # the prompt comes first

    def put(self, tokens: Any) -> None:
        self.done += 1
        self.update(self.done, self.total)

    def end(self) -> None:
        self.update(self.total, self.total)  # it may have stopped before
        self.done = -1  # of the next text


def _chat(file: Path) -> Any:
    content = _read(file, "--chat", "a JSON file with a list of messages")
    try:
        messages = json.loads(content)
    except json.JSONDecodeError as error:
        raise LoadError(f"--chat {file} is no JSON ({error}): write a list of messages") from None
    if isinstance(messages, dict) and "messages" in messages:
        messages = messages["messages"]
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        raise UsageError(
            f'--chat {file} holds no list of messages: write [{{"role": "user", "content": "…"}}]'
        )
    return messages


def _document(file: Path) -> str:
    return _read(file, "--document", "a text file").strip()


def _read(file: Path, option: str, expected: str) -> str:
    if not file.is_file():
        problem = "is not a file" if file.exists() else "does not exist"
        raise UsageError(f"{option} {file} {problem}: give {expected}")
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"{option} {file} could not be read ({error}): save it as UTF-8") from None
