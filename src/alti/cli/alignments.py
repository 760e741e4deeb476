"""`alti align`: which words of a source the words of its translation come from."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alti._errors import UsageError
from alti.cli.console import passes, require_writable, say, write
from alti.cli.prompts import Answer, Asked, Generate, Seed, Temperature
from alti.cli.shared import (
    Device,
    Dtype,
    Html,
    Json,
    Latex,
    ModelName,
    Near,
    Plot,
    SourceLanguage,
    TargetLanguage,
    Truncate,
    Trust,
    open_model,
    require_kind,
    require_picture,
    write_picture,
)
from alti.cli.texts import method_options

if TYPE_CHECKING:
    from alti.model.alignment import Alignment


def align(
    text: Annotated[str, typer.Argument(help="The source.")],
    model: ModelName = None,
    answer: Answer = None,
    generate: Generate = None,
    temperature: Temperature = None,
    seed: Seed = 0,
    method: Annotated[str, typer.Option(help="See `alti methods`.")] = "alti",
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="Option of the method, like p=2.")
    ] = None,
    near: Near = None,
    spaced: Annotated[
        bool, typer.Option("--spaced", help="Words are what stands between spaces.")
    ] = False,
    html: Html = None,
    latex: Latex = None,
    plot: Plot = None,
    kind: Annotated[str, typer.Option(help="What to --plot: lines or matrix.")] = "lines",
    truncate: Truncate = False,
    src_lang: SourceLanguage = None,
    tgt_lang: TargetLanguage = None,
    device: Device = "auto",
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    as_json: Json = False,
) -> None:
    """Align the words of a translation with those of its source, by an encoder–decoder's scores."""
    asked = Asked(text, None, answer, generate, temperature, seed)
    output = Output(as_json, html, latex, plot, kind)
    options = method_options(method, option or [])
    drawn: dict[str, Any] = {"spaced": spaced} | ({} if near is None else {"near": near})
    languages = {"src_lang": src_lang, "tgt_lang": tgt_lang}
    loaded = open_model(model, device, dtype, trust_remote_code, languages=languages)
    if loaded.head.kind != "seq2seq" or loaded.head.hears:
        raise UsageError(
            f"{loaded.name} does not write one text for another, and an alignment needs both: "
            "load an encoder–decoder that reads text"
        )
    with asked.arguments() as arguments, passes():
        result: Any = loaded.explain(**arguments, method=method, truncate=truncate, **options)
    output.show(result.alignment(**drawn))


@dataclass(frozen=True, slots=True)
class Output:
    """Where an alignment goes; wrong options are refused before any work is done."""

    as_json: bool
    html: Path | None
    latex: Path | None
    plot: Path | None
    kind: str

    def __post_init__(self) -> None:
        from alti.model.alignment import PLOTS

        require_writable("--html", self.html)
        require_writable("--latex", self.latex)
        require_writable("--plot", self.plot)
        require_kind(self.kind, PLOTS)
        if self.plot is not None:
            require_picture(self.plot)

    def show(self, alignment: "Alignment") -> None:
        """Print it, or write it into files."""
        if self.as_json:
            say(json.dumps(alignment.to_dict()))
        elif not (self.html or self.latex or self.plot):
            say(alignment.render())
        if self.html:
            write(self.html, alignment.to_html())
        if self.latex:
            write(self.latex, alignment.to_latex(document=True))
        if self.plot:
            write_picture(self.plot, alignment.plot(self.kind))
