"""What the commands share: options, how a model is loaded, and where results go."""

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alti._characters import note
from alti._errors import UsageError
from alti._files import require_target, write_whole
from alti.cli.console import no_input, require_writable, say, write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from alti import Model
    from alti.model.attribution import Attribution
    from alti.model.attributions import Attributions

    Result = Attribution | Attributions

ModelName = Annotated[
    str | None,
    typer.Option("--model", "-m", help="A Hugging Face hub name or a folder; default: embedded."),
]
Pair = Annotated[str | None, typer.Option(help="The second text, for models that read two.")]
Target = Annotated[
    str | None, typer.Option(help="Label, its index, or a token. Default: the prediction.")
]
Against = Annotated[
    str | None, typer.Option(help="Label or token: explain why the target rather than this.")
]
Position = Annotated[int | None, typer.Option(help="Explain the prediction at this token.")]
Tokens = Annotated[bool, typer.Option("--tokens", help="Show tokens instead of words.")]
Bars = Annotated[
    bool, typer.Option("--bars", help="Show bars, or a table, even where colours are possible.")
]
Html = Annotated[Path | None, typer.Option("--html", help="Write a web page instead of printing.")]
Latex = Annotated[
    Path | None, typer.Option("--latex", help="Write a LaTeX document instead of printing.")
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", help="Draw into a PNG, SVG or PDF file instead of printing."),
]
Truncate = Annotated[bool, typer.Option("--truncate", help="Cut texts that are too long.")]
TextColumn = Annotated[str | None, typer.Option(help="Default: text, sentence, …")]
LabelColumn = Annotated[str | None, typer.Option(help="Default: label.")]
PairColumn = Annotated[str | None, typer.Option(help="The second text, for models that read two.")]
MaskToken = Annotated[str | None, typer.Option(help="How the data spells the mask token.")]
SourceLanguage = Annotated[
    str | None, typer.Option("--src-lang", help="That is read, for tokenizers of many languages.")
]
TargetLanguage = Annotated[
    str | None, typer.Option("--tgt-lang", help="That is written, for tokenizers of many.")
]
Near = Annotated[
    float | None,
    typer.Option(help="Link source words with so much of the best one's score; default: 0.5."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16, …; default: float32 on a CPU.")]
Trust = Annotated[bool, typer.Option("--trust-remote-code", help="Run the model's own code.")]
Graphs = Annotated[
    bool,
    typer.Option("--graphs", help="Record explanations as CUDA graphs, for short texts."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]


def comma_separated(value: str) -> list[str]:
    """The names that an option lists, each once."""
    names = [name.strip() for name in value.split(",") if name.strip()]
    if not names:
        raise UsageError(f"{value!r} names nothing: give names, separated by commas")
    return list(dict.fromkeys(names))


def open_model(
    model: str | None,
    device: str,
    dtype: str | None,
    trust: bool,
    graphs: bool = False,
    languages: dict[str, str | None] | None = None,
) -> "Model":
    """Load the model, without progress bars or warnings about retries."""
    from transformers.utils.logging import disable_progress_bar

    from alti import load

    disable_progress_bar()
    # each retry is a warning; a failure is reported once, at the end
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    options: dict[str, Any] = {key: value for key, value in (languages or {}).items() if value}
    options |= {"device": device, "dtype": dtype, "graphs": graphs, "trust_remote_code": trust}
    with no_input():
        return load(model, **options)


@dataclass(frozen=True, slots=True)
class Output:
    """What a command does with its results; wrong options are refused before any work is done."""

    as_json: bool
    tokens: bool  # not words
    bars: bool
    html: Path | None
    latex: Path | None
    plot: Path | None = None
    kind: str = "tokens"  # of the plot
    group: str | None = None  # what scores are added up by

    def __post_init__(self) -> None:
        require_writable("--html", self.html)
        require_writable("--latex", self.latex)
        require_writable("--plot", self.plot)
        if self.plot is not None:
            from alti.model.attribution import PLOTS

            require_kind(self.kind, PLOTS)
            require_picture(self.plot)
        if self.group is not None and (self.kind != "tokens" or self.tokens):
            raise UsageError("--group adds tokens up: leave --tokens and --kind out")

    @property
    def prints_text(self) -> bool:
        """Whether results are shown on the terminal, for a reader."""
        return not (self.as_json or self.html or self.latex or self.plot)

    @property
    def prints(self) -> bool:
        """Whether results go to stdout, in either form."""
        return self.as_json or self.prints_text

    @property
    def plots_layers(self) -> bool:
        """Whether the plot needs the maps of the layers."""
        return self.plot is not None and self.kind not in ("tokens", "lens")

    def grouped(self, result: "Result") -> "Result":
        """A result by the groups that were asked for."""
        by: Any = self.group
        return result if by is None else result.grouped(by)

    def show(self, result: "Result") -> None:
        """Print a result."""
        result = self.grouped(result)
        if self.as_json:
            say(json.dumps(result.to_dict()))
        elif self.prints_text:
            say(result.render(words=not self.tokens, bars=self.bars))

    def show_together(self, results: "Sequence[Attribution]") -> None:
        """Print results side by side."""
        if self.as_json:
            for result in results:
                self.show(result)
        elif self.prints_text:
            from alti.views import terminal

            grouped: Any = [self.grouped(result) for result in results]
            say(terminal.compare(grouped, words=not self.tokens, bars=self.bars))

    def save(self, results: "Sequence[Result]") -> None:
        """Write all results into the page and the document; of many answers, the whole of each."""
        from alti.model.attribution import Attribution
        from alti.views import html, latex

        shown: Any = [self.grouped(result) for result in results]
        if len(shown) == 1:
            (shown,) = shown
        elif not all(isinstance(result, Attribution) for result in shown):
            shown = [result.total() for result in shown]
        if self.html and results:
            write(self.html, html.page(shown, words=not self.tokens))
        if self.latex and results:
            write(self.latex, latex.document(shown, words=not self.tokens))

    def draw(self, result: "Result") -> None:
        """Draw a result into the picture."""
        if self.plot is None:
            return
        result = self.grouped(result)
        options: dict[str, Any] = {"words": not self.tokens} if self.kind == "tokens" else {}
        write_picture(self.plot, result.plot(self.kind, **options))


def write_picture(file: Path, figure: "Figure") -> None:
    """Write a figure completely or not at all, as what the file's name ends like."""
    picture = BytesIO()
    figure.savefig(picture, format=file.suffix[1:].lower(), dpi=150)
    write_whole(file, picture.getvalue())
    note(f"{file} written")


def require_kind(kind: str, kinds: Iterable[str]) -> None:
    if kind not in kinds:
        raise UsageError(f"--kind {kind} does not exist: choose from {', '.join(kinds)}")


def require_picture(file: Path) -> None:
    """Refuse a file that no picture can be written into."""
    from alti.views.plots import ENDINGS

    if file.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"--plot {file} does not end like a picture: choose from {', '.join(ENDINGS)}"
        )
    require_target(file, f"--plot {file}")
