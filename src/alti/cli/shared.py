"""What the commands share: options, and how a model is loaded."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alti import UsageError
from alti.cli.console import unanswered

if TYPE_CHECKING:
    from alti import Model

ModelName = Annotated[
    str | None,
    typer.Option("--model", "-m", help="A Hugging Face hub name or a folder; default: embedded."),
]
Against = Annotated[
    str | None, typer.Option(help="Label or token: explain why rather the target than this.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16, …; default: float32 on a CPU.")]
Trust = Annotated[bool, typer.Option("--trust-remote-code", help="Run the model's own code.")]
Bars = Annotated[
    bool, typer.Option("--bars", help="Show bars, or a table, also where there are colours.")
]
Html = Annotated[Path | None, typer.Option("--html", help="Write a web page instead of printing.")]
Latex = Annotated[
    Path | None, typer.Option("--latex", help="Write a LaTeX document instead of printing.")
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", help="Draw into a PNG, SVG or PDF file instead of printing."),
]
PairColumn = Annotated[str | None, typer.Option(help="The second text, for models that read two.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]


def by_commas(given: str) -> list[str]:
    """What an option lists, separated by commas."""
    found = [name.strip() for name in given.split(",") if name.strip()]
    if not found:
        raise UsageError(f"{given!r} names nothing: give names, separated by commas")
    return list(dict.fromkeys(found))


def open_model(model: str | None, device: str, dtype: str | None, trust: bool) -> "Model":
    """The model, loaded without any talk."""
    from transformers.utils.logging import disable_progress_bar

    from alti import load

    disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(
        logging.ERROR
    )  # each retry is a warning; what fails is told once
    with unanswered():
        return load(model, device=device, dtype=dtype, trust_remote_code=trust)
