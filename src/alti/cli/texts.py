"""Commands that explain texts: on the terminal, in files, on a page."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from alti import AltiError, LoadError, UsageError
from alti._characters import note, plain
from alti.cli.console import Lines, drawing, save, say, show, watched, writable
from alti.cli.shared import (
    Against,
    Bars,
    Device,
    Dtype,
    Html,
    Json,
    Latex,
    ModelName,
    Plot,
    Trust,
    by_commas,
    open_model,
)

COMPARED = "alti,absence,linear,input_x_gradient,attention_rollout"


def explain(
    text: Annotated[
        str | None, typer.Argument(help="The text; - reads one text per line from standard input.")
    ] = None,
    model: ModelName = None,
    file: Annotated[Path | None, typer.Option(help="Read one text per line from a file.")] = None,
    pair: Annotated[
        str | None, typer.Option(help="The second text, for models that read two.")
    ] = None,
    method: Annotated[str, typer.Option(help="See `alti methods`.")] = "alti",
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="Option of the method, like p=2.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Label or its index; or a token. Default: the prediction.")
    ] = None,
    against: Against = None,
    position: Annotated[
        int | None, typer.Option(help="Explain the prediction at this token.")
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show tokens instead of words.")] = False,
    bars: Bars = False,
    html: Html = None,
    latex: Latex = None,
    plot: Plot = None,
    kind: Annotated[
        str, typer.Option(help="What to --plot: tokens, matrix, layers or graph.")
    ] = "tokens",
    layers: Annotated[
        bool, typer.Option("--layers", help="With --json: the maps per layer too.")
    ] = False,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut texts that are too long.")
    ] = False,
    batch_size: Annotated[int, typer.Option(help="Texts per forward pass.")] = 32,
    device: Device = "auto",
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    as_json: Json = False,
) -> None:
    """Explain a text, or every line of a file: which tokens does the prediction rest on?"""
    if (text is None) == (file is None):
        raise UsageError("give either a TEXT (- for standard input) or --file FILE")
    if layers and not as_json:
        raise UsageError(
            "--layers prints the maps as JSON: add --json, or draw them with --plot FILE --kind layers"
        )
    for name, path in (("--html", html), ("--latex", latex), ("--plot", plot)):
        writable(name, path)
    drawn = drawing(plot, kind)
    asked: dict[str, Any] = {
        "method": method,
        "target": target,
        "against": against,
        "position": position,
    }
    asked["layers"] = layers or (plot is not None and kind != "tokens")
    asked |= {"truncate": truncate, **_options(method, option or [])}
    if text is not None and text != "-":
        found = [open_model(model, device, dtype, trust_remote_code).explain(text, pair, **asked)]
        show(found[0], as_json, tokens, bars, html or latex or plot)
        save(found, html, latex, tokens)
        drawn(found[0], tokens)
        return
    if pair is not None or plot is not None:
        raise UsageError("--pair and --plot go with one TEXT, not with the lines of a file")
    lines = Lines(file)
    loaded = open_model(model, device, dtype, trust_remote_code)
    results = loaded.explain_all(lines, batch_size=batch_size, **asked)
    done, found = 0, []
    try:
        for result in watched(results, lines.count(), printed=as_json or not (html or latex)):
            if done and sys.stdout.isatty() and not (as_json or html or latex):
                say()
            found += [result] if html or latex else []
            show(result, as_json, tokens, bars, html or latex)
            done += 1
    except AltiError as error:
        where = f"line {lines.numbers[done]}: " if done < len(lines.numbers) else ""
        raise type(error)(f"{where}{error}") from error
    finally:
        save(found, html, latex, tokens)
        lines.tell(done)
    if not done:
        raise LoadError(f"{file or 'standard input'} has no text: give one a line")


def compare(
    text: Annotated[str, typer.Argument(help="The text.")],
    model: ModelName = None,
    pair: Annotated[
        str | None, typer.Option(help="The second text, for models that read two.")
    ] = None,
    methods: Annotated[
        str, typer.Option(help="Method names, by commas; alti:p=2 gives an option.")
    ] = COMPARED,
    target: Annotated[
        str | None, typer.Option(help="Label or its index; or a token. Default: the prediction.")
    ] = None,
    against: Against = None,
    position: Annotated[
        int | None, typer.Option(help="Explain the prediction at this token.")
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show tokens instead of words.")] = False,
    bars: Bars = False,
    html: Html = None,
    latex: Latex = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut a text that is too long.")
    ] = False,
    device: Device = "auto",
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    as_json: Json = False,
) -> None:
    """Explain one text with several methods, side by side."""
    from alti.experiments.bench import parsed
    from alti.methods import reads_class
    from alti.views import terminal

    writable("--html", html)
    writable("--latex", latex)
    specs = [parsed(spec) for spec in by_commas(methods)]
    if against is not None and (blind := [name for name, _ in specs if not reads_class(name)]):
        note(f"left out, being the same for every class: {', '.join(blind)}")
        specs = [spec for spec in specs if spec.name not in blind]
    loaded = open_model(model, device, dtype, trust_remote_code)
    asked: dict[str, Any] = {"target": target, "against": against, "position": position}
    asked |= {"truncate": truncate, "layers": False}
    found = [loaded.explain(text, pair, method=name, **asked, **options) for name, options in specs]
    if as_json:
        for result in found:
            say(json.dumps(result.to_dict()))
    elif not (html or latex):
        say(terminal.compare(found, words=not tokens, bars=bars))
    save(found, html, latex, tokens)


def check(
    model: Annotated[
        str | None, typer.Argument(help="A Hugging Face hub name or a folder; default: embedded.")
    ] = None,
    device: Device = "auto",
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    as_json: Json = False,
) -> None:
    """Prove that a model is read right: every block, rebuilt from its parts, is what the model computed."""
    loaded = open_model(model, device, dtype, trust_remote_code)
    family, name = loaded.family, loaded.dtype
    errors = {name: loaded.check()}
    if name in (
        "float16",
        "bfloat16",
    ):  # half precision rounds too much to tell an exact sum from a nearly right one
        loaded = loaded.in_float32()
        errors["float32"] = loaded.check()
    gap = loaded.completeness()
    if as_json:
        told = {"model": model or loaded.name, "family": family, "exact": True}
        say(json.dumps({**told, "errors": errors, "completeness": gap}))
        return
    worst = [f"worst error {max(found):.1e} in {dtype}" for dtype, found in errors.items()]
    worst += [] if gap is None else [f"linear view complete to {gap:.1e}"]
    say(f"{plain(loaded.name)} ({family}): {len(errors[name])} blocks, {', '.join(worst)}: exact")


def serve(
    models: Annotated[
        list[str] | None, typer.Argument(help="Hub names or folders; default: embedded.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; others than loopback let others in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any that is free.")] = 8765,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open the page.")] = False,
    max_tokens: Annotated[int, typer.Option(help="Longer texts are refused.")] = 512,
    device: Device = "auto",
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
) -> None:
    """Open a web page on this machine: type a text and see which tokens the prediction rests on."""
    from alti.web import serve
    from alti.web.settings import Limits, Settings

    names = tuple(models) if models else (None,)
    limits = Limits(tokens=max_tokens)
    settings = Settings(names, host, port, device, dtype, limits, trust_remote_code)
    serve(settings, browser=not no_browser)


def _options(method: str, given: list[str]) -> dict[str, Any]:
    from alti.methods import read_options, validate

    options = read_options(given)
    validate(method, options)
    return options
