"""Commands that explain texts: on the terminal, in files."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alti import AltiError, LoadError, UsageError
from alti._characters import note
from alti.cli import pictures
from alti.cli.console import Lines, passes, say, watched
from alti.cli.deeper import Heads, Lens, show_heads
from alti.cli.many import (
    Actors,
    Address,
    EngineName,
    Folder,
    Gpus,
    IdColumn,
    Out,
    ShardRows,
    TopK,
)
from alti.cli.prompts import (
    Answer,
    Asked,
    ChatFile,
    Choices,
    Documents,
    Generate,
    Group,
    NoBos,
    Positions,
    Seed,
    Temperature,
    Total,
)
from alti.cli.shared import (
    Against,
    Bars,
    Device,
    Dtype,
    Graphs,
    Html,
    Json,
    Latex,
    ModelName,
    Output,
    Pair,
    PairColumn,
    Plot,
    Position,
    SourceLanguage,
    Target,
    TargetLanguage,
    TextColumn,
    Tokens,
    Truncate,
    Trust,
    comma_separated,
    open_model,
)
from alti.cli.sounds import Audio

if TYPE_CHECKING:
    from alti import Model
    from alti.experiments.evaluate import Spec

COMPARED = "alti,absence,linear,input_x_gradient,attention_rollout"


def explain(
    text: Annotated[
        str | None, typer.Argument(help="The text; - reads one text per line from standard input.")
    ] = None,
    model: ModelName = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Read one text per line; with --out also JSONL, CSV, Parquet, folders."),
    ] = None,
    out: Out = None,
    pair: Pair = None,
    method: Annotated[str, typer.Option(help="See `alti methods`.")] = "alti",
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="Option of the method, like p=2.")
    ] = None,
    target: Target = None,
    against: Against = None,
    position: Position = None,
    positions: Positions = None,
    answer: Answer = None,
    generate: Generate = None,
    temperature: Temperature = None,
    seed: Seed = 0,
    documents: Documents = None,
    choices: Choices = None,
    chat: ChatFile = None,
    audio: Audio = None,
    total: Total = False,
    group: Group = None,
    no_bos: NoBos = False,
    tokens: Tokens = False,
    bars: Bars = False,
    html: Html = None,
    latex: Latex = None,
    plot: Plot = None,
    kind: Annotated[
        str, typer.Option(help="What to --plot: tokens, matrix, layers, graph or lens.")
    ] = "tokens",
    layers: Annotated[
        bool, typer.Option("--layers", help="With --json: include the maps of each layer.")
    ] = False,
    lens: Lens = False,
    heads: Heads = None,
    truncate: Truncate = False,
    src_lang: SourceLanguage = None,
    tgt_lang: TargetLanguage = None,
    batch_size: Annotated[int, typer.Option(help="Texts per forward pass.")] = 32,
    top_k: TopK = None,
    split: Annotated[str | None, typer.Option(help="With --out: of the data.")] = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    id_column: IdColumn = None,
    shard_rows: ShardRows = None,
    engine: EngineName = "local",
    address: Address = None,
    actors: Actors = None,
    gpus: Gpus = 0,
    device: Device = "auto",
    dtype: Dtype = None,
    graphs: Graphs = False,
    trust_remote_code: Trust = False,
    as_json: Json = False,
) -> None:
    """Explain a text, or every line of a file: which tokens does the prediction rest on?

    Of a language model also an answer: which words, sentences or documents made it say this?
    """
    asked = Asked(text, pair, answer, generate, temperature, seed, documents, chat, choices, audio)
    asked = replace(asked, positions=positions)
    _require_one_text(text, file, chat, audio)
    folder = Folder(
        out, engine, address, actors, gpus, top_k, shard_rows,
        split, text_column, pair_column, id_column,
    )  # fmt: skip
    _require_json(layers, as_json or out is not None)
    output = Output(as_json, tokens, bars, html, latex, plot, kind, group)
    options: dict[str, Any] = {
        "method": method,
        "target": target,
        "against": against,
        "position": position,
        "total": total,
        "groups": group,
        "bos": False if no_bos else "auto",
        "layers": layers or output.plots_layers,
        "lens": lens or (plot is not None and kind == "lens"),
        "truncate": truncate,
        **method_options(method, option or []),
    }
    languages = {"src_lang": src_lang, "tgt_lang": tgt_lang}
    if out is not None:
        _require_lines(asked, plot or html or latex, heads, src_lang or tgt_lang)
        loading = (model, device, dtype, graphs, trust_remote_code)
        folder.explain(file, loading, {**options, **asked.of_lines}, batch_size, as_json)
        return
    opening = partial(open_model, model, device, dtype, trust_remote_code, graphs, languages)
    if file is not None or text == "-":
        _require_lines(asked, plot, heads)
        _explain_lines(Lines(file), opening, asked, {**options, "batch_size": batch_size}, output)
        return
    loaded = asked.checked(opening())
    if heads is not None:
        show_heads(loaded, heads, asked, options, output)
        return
    with asked.arguments() as arguments, passes():
        result = asked.chosen(loaded.explain(**arguments, **options))
    _deliver(result, loaded.head.kind, output)


def _deliver(result: Any, kind: str, output: Output) -> None:
    if kind == "image":
        pictures.show(result, output)
        return
    output.show(result)
    output.save([result])
    output.draw(result)


def _require_json(layers: bool, stored: bool) -> None:
    if layers and not stored:
        raise UsageError(
            "--layers prints the maps as JSON: "
            "add --json, or draw them with --plot FILE --kind layers"
        )


def _require_one_text(text: str | None, *files: Path | None) -> None:
    """Raise unless there is a text, or one of the files that stand for one."""
    if [text, *files].count(None) != len(files):
        raise UsageError(
            "give one of a TEXT (- for standard input), --file FILE, --chat FILE or --audio FILE"
        )


def _require_lines(
    asked: Asked, drawn: Path | None, heads: int | None, language: str | None = None
) -> None:
    parts = (asked.pair, asked.documents, asked.choices, asked.positions)
    if any(parts) or drawn is not None or heads is not None:
        raise UsageError(
            "--pair, --document, --choice, --positions, --plot and --heads go with one TEXT, not "
            "with the lines of a file"
        )
    if language is not None:
        raise UsageError(
            f"the language {language} is not given on with --out: set it in the tokenizer's folder"
        )


def _explain_lines(
    lines: Lines,
    opening: "Callable[[], Model]",
    asked: Asked,
    options: dict[str, Any],
    output: Output,
) -> None:
    model = opening()
    if model.head.kind == "image":
        raise UsageError(f"{model.name} reads images: explain them one by one, not line by line")
    with asked.writing() as written:
        options |= {"answer": asked.answer, "generate": written}
        _show_lines(model.explain_all(lines, **options), lines, output)


def _show_lines(results: "Iterator[Any]", lines: Lines, output: Output) -> None:
    """Show results as they come; what is done before an error is saved."""
    done = 0
    to_save = []
    try:
        for result in watched(results, lines.count(), printed=output.prints):
            if done and output.prints_text and sys.stdout.isatty():
                say()
            if output.html or output.latex:
                to_save.append(result)
            output.show(result)
            done += 1
    except AltiError as error:
        where = f"line {lines.numbers[done]}: " if done < len(lines.numbers) else ""
        reason = str(error).removeprefix(f"texts[{done}]: ")
        raise type(error)(f"{where}{reason}") from error
    finally:
        output.save(to_save)
        if lines.numbers:
            lines.report(done)
    if not done:
        raise LoadError(f"{lines.name} has no text: give one per line")


def method_options(method: str, given: list[str]) -> dict[str, Any]:
    from alti.methods import read_options, validate

    options = read_options(given)
    validate(method, options)
    return options


def compare(
    text: Annotated[str | None, typer.Argument(help="The text.")] = None,
    model: ModelName = None,
    pair: Pair = None,
    methods: Annotated[
        str, typer.Option(help="Comma-separated names; alti:p=2 sets an option.")
    ] = COMPARED,
    target: Target = None,
    against: Against = None,
    position: Position = None,
    answer: Answer = None,
    generate: Generate = None,
    temperature: Temperature = None,
    seed: Seed = 0,
    documents: Documents = None,
    chat: ChatFile = None,
    audio: Audio = None,
    group: Group = None,
    no_bos: NoBos = False,
    tokens: Tokens = False,
    bars: Bars = False,
    html: Html = None,
    latex: Latex = None,
    truncate: Truncate = False,
    src_lang: SourceLanguage = None,
    tgt_lang: TargetLanguage = None,
    device: Device = "auto",
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    as_json: Json = False,
) -> None:
    """Explain one text, or one whole answer, with several methods side by side."""
    asked = Asked(text, pair, answer, generate, temperature, seed, documents, chat, audio=audio)
    _require_one_text(text, chat, audio)
    output = Output(as_json, tokens, bars, html, latex, group=group)
    specs = _specs(methods, against)
    languages = {"src_lang": src_lang, "tgt_lang": tgt_lang}
    loaded = open_model(model, device, dtype, trust_remote_code, languages=languages)
    options: dict[str, Any] = {
        "target": target,
        "against": against,
        "position": position,
        "total": asked.has_answer,
        "groups": group,
        "bos": False if no_bos else "auto",
        "truncate": truncate,
        "layers": False,
    }
    with asked.arguments() as arguments:
        if generate is not None:  # written once, explained by all
            written = loaded.written(**arguments, bos=options["bos"])
            arguments |= {"generate": None, "answer_ids": written}
        results = [
            loaded.explain(**arguments, method=name, **options, **own) for name, own in specs
        ]
    output.show_together(results)
    output.save(results)


def _specs(methods: str, against: str | None) -> "list[Spec]":
    """The methods to compare; with --against, only those that differ between classes."""
    from alti.experiments.bench import parsed
    from alti.methods import METHODS

    specs = [parsed(spec) for spec in comma_separated(methods)]
    blind = [name for name, _ in specs if not METHODS[name].class_specific]
    if against is None or not blind:
        return specs
    note(f"left out, the same for every class: {', '.join(blind)}")
    return [spec for spec in specs if spec.name not in blind]
