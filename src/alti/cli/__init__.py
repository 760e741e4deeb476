"""The command line: each command is a library call. Results go to stdout, messages to stderr."""

import io
import logging
import sys
import warnings
from collections.abc import Callable
from typing import Annotated

import typer

from alti import AltiError, UsageError, __version__
from alti._characters import note
from alti.cli import alignments, lists, many, models, runs, texts
from alti.cli.console import silence
from alti.cli.mistakes import is_mistake, sentence_of
from alti.cli.panels import InPanels

app = typer.Typer(
    help="Show how a Transformer mixes its input and which tokens a prediction rests on.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: tuple[Callable[..., None], ...] = (  # in the order of the help
    texts.explain,
    texts.compare,
    alignments.align,
    many.results,
    runs.bench,
    runs.train,
    models.serve,
    models.check,
    lists.families,
    lists.methods,
    lists.metrics,
)
for command in COMMANDS:
    app.command(cls=InPanels)(command)


def main() -> None:
    """Run the command line; a known error is one sentence and exit code 1, or 2 for wrong usage."""
    warnings.showwarning = lambda message, *_: note(message)
    # where it is installed, importing it logs which kernels it does without
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for a terminal that cannot show ▏ or é
    try:
        code = app(prog_name="alti", standalone_mode=False)
    except AltiError as error:
        note(error)
        code = 2 if isinstance(error, UsageError) else 1
    except OSError as error:  # for example a full disk
        place = error.filename or "the output"
        note(f"{place} could not be written: {error.strerror}")
        silence()
        code = 1
    except Exception as error:
        if not is_mistake(error):
            raise
        note(sentence_of(error))
        code = 2
    sys.exit(code)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"alti {__version__}")
        raise typer.Exit


@app.callback()
def _start(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)
