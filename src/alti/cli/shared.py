"""What the commands share: options, and how a model is loaded."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alti import UsageError
from alti.cli.console import no_input

if TYPE_CHECKING:
    from alti import Model

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
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16, …; default: float32 on a CPU.")]
Trust = Annotated[bool, typer.Option("--trust-remote-code", help="Run the model's own code.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]


def comma_separated(value: str) -> list[str]:
    """The names that an option lists, each once."""
    names = [name.strip() for name in value.split(",") if name.strip()]
    if not names:
        raise UsageError(f"{value!r} names nothing: give names, separated by commas")
    return list(dict.fromkeys(names))


def open_model(model: str | None, device: str, dtype: str | None, trust: bool) -> "Model":
    """Load the model, without progress bars or warnings about retries."""
    from transformers.utils.logging import disable_progress_bar

    from alti import load

    disable_progress_bar()
    # each retry is a warning; a failure is reported once, at the end
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    with no_input():
        return load(model, device=device, dtype=dtype, trust_remote_code=trust)
