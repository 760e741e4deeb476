"""Explains the texts of a shard; a text that cannot be explained keeps its reason."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alti._errors import AltiError, UsageError
from alti.engines.data import Entry
from alti.engines.rows import Row, row_of

if TYPE_CHECKING:
    from alti.model.model import Model

Text = str | tuple[str, str]


@dataclass(frozen=True, slots=True)
class Loading:
    """A model by name, which every worker loads for itself; or, in this process, a model."""

    name: Any = None
    device: str = "auto"
    dtype: str | None = None
    graphs: bool = False
    trust_remote_code: bool = False

    def absolute(self) -> "Loading":
        """A folder by a name that workers in other folders find too."""
        is_folder = isinstance(self.name, str | Path) and Path(self.name).exists()
        return replace(self, name=str(Path(self.name).absolute())) if is_folder else self

    def load(self) -> "Model":
        from transformers.utils.logging import disable_progress_bar

        from alti.model.loading import load
        from alti.model.model import Model

        if isinstance(self.name, Model):
            return self.name
        disable_progress_bar()
        return load(
            self.name,
            device=self.device,
            dtype=self.dtype,
            graphs=self.graphs,
            trust_remote_code=self.trust_remote_code,
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """What is done with every text: the arguments of `Model.explain_all`, and what is kept."""

    options: dict[str, Any] = field(default_factory=dict)
    batch_size: int = 32
    top_k: int | None = None

    def __post_init__(self) -> None:
        from alti.methods import validate

        known = arguments()
        own = {name: value for name, value in self.options.items() if name not in known}
        validate(self.options.get("method", "alti"), own)
        counted = (("batch_size", self.batch_size, "texts"), ("top_k", self.top_k, "tokens"))
        for name, count, of in counted:
            if count is not None and count < 1:
                raise UsageError(f"{name} = {count} is not a number of {of}: give 1 or more")
        answers = [name for name in ("answer", "generate") if self.options.get(name) is not None]
        if answers and not self.options.get("total"):
            raise UsageError(
                f"{answers[0]} explains every token of an answer, and a text has one row: explain "
                "the answer as a whole (total, --total)"
            )
        if self.options.get("lens"):
            raise UsageError("lens (--lens) is not kept with many texts: explain them one by one")
        if self.top_k is not None and self.options.get("layers"):
            raise UsageError("top_k keeps some tokens and layers are maps of all: leave one out")


def arguments() -> set[str]:
    """What `explain_all` takes beside texts and the method's own options."""
    from alti.model.model import Model

    return set(signature(Model.explain_all).parameters) - {"self", "texts", "batch_size", "options"}


def rows(model: "Model", entries: Sequence[Entry], asked: Asked) -> list[Row]:
    """A row for each entry, in their order; texts of similar length are explained together."""
    _require_single(model, asked)
    given = [entry for entry in entries if entry.error is None]
    given.sort(key=lambda entry: len(entry.text or ""))
    texts = [_text(entry) for entry in given]
    found = dict(zip((entry.number for entry in given), _each(model, texts, asked), strict=True))
    return [_row(entry, found.get(entry.number, entry.error), asked) for entry in entries]


def _require_single(model: "Model", asked: Asked) -> None:
    """Refuse models whose results have another form, before any text is explained."""
    kind = model.head.kind
    if kind in ("image", "choice"):
        raise UsageError(f"{model.name} is a model of {kind}s: explain them one by one (explain)")
    if kind == "span" and not asked.options.get("total"):
        raise UsageError(
            "an answer in a text has a start and an end, and a text has one row: explain them "
            "together (total, --total)"
        )


def _text(entry: Entry) -> Text:
    return entry.text or "" if entry.pair is None else (entry.text or "", entry.pair)


def _each(model: "Model", texts: list[Text], asked: Asked) -> Iterator[Any]:
    """The result of each text, or why it has none.

    An error stops a batch, and may be about any of its texts: the first without a result is
    explained alone, and those behind it go on in batches.
    """
    done = 0
    while done < len(texts):
        try:
            for result in _explained(model, texts[done:], asked):
                yield result
                done += 1
        except (AltiError, RuntimeError, ValueError, IndexError) as error:
            _require_working(error)
            yield _alone(model, texts[done], asked)
            done += 1


def _alone(model: "Model", text: Text, asked: Asked) -> Any:
    try:
        (result,) = _explained(model, [text], asked)
    except (AltiError, RuntimeError, ValueError, IndexError) as error:
        _require_working(error)
        sentence = " ".join(str(error).removeprefix("texts[0]: ").split())
        return sentence if isinstance(error, AltiError) else f"{type(error).__name__}: {sentence}"
    return result


def _explained(model: "Model", texts: list[Text], asked: Asked) -> Iterator[Any]:
    return model.explain_all(texts, batch_size=asked.batch_size, **asked.options)


def _require_working(error: Exception) -> None:
    """Go on after an error about a text, not with a GPU that computes nothing any more."""
    if type(error).__name__ == "AcceleratorError":
        raise error


def _row(entry: Entry, found: Any, asked: Asked) -> Row:
    named = {"number": entry.number, "id": entry.id, "text": entry.text, "pair": entry.pair}
    if isinstance(found, str):
        return {**named, "error": found}
    # a prompt and its answer are two texts, and so are those of a pair
    shown = dict(zip(("text", "pair"), found.source.texts, strict=False))
    return {**named, **shown, **row_of(found, asked.top_k)}
