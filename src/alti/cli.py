"""The command line: each command is a library call. Results go to stdout, talk to stderr."""

import io
import json
import logging
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alti import FAMILIES, AltiError, LoadError, UsageError, __version__
from alti.console import Lines, bar, drawing, resumable, save, say, show, silence, table, watched, writable

if TYPE_CHECKING:
    from alti import Model

COMPARED = "alti,absence,linear,input_x_gradient,attention_rollout"

app = typer.Typer(
    help="Show how a Transformer mixes its input and which tokens a prediction rests on.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ModelName = Annotated[
    str | None, typer.Option("--model", "-m", help="A Hugging Face hub name or a folder; default: embedded.")
]
Against = Annotated[str | None, typer.Option(help="Label or token: explain why rather the target than this.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16, …; default: float32 on a CPU.")]
Bars = Annotated[bool, typer.Option("--bars", help="Show bars, or a table, also where there are colours.")]
Html = Annotated[Path | None, typer.Option("--html", help="Write a web page instead of printing.")]
Latex = Annotated[Path | None, typer.Option("--latex", help="Write a LaTeX document instead of printing.")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Draw into a PNG, SVG or PDF file instead of printing.")]
PairColumn = Annotated[str | None, typer.Option(help="The second text, for models that read two.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]


def main() -> None:
    """Run the command line; a known error is one sentence and exit code 1, or 2 where the usage was wrong."""
    warnings.showwarning = lambda message, *_: print(f"alti: {message}", file=sys.stderr)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without ▏ or é still gets its line
    try:
        app()
    except AltiError as error:
        print(f"alti: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except OSError as error:  # a full disk
        print(f"alti: the output could not be written: {error.strerror}", file=sys.stderr)
        silence()
        sys.exit(1)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"alti {__version__}")
        raise typer.Exit


@app.callback()
def _start(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


@app.command()
def explain(
    text: Annotated[str | None, typer.Argument(help="The text; - reads one text per line from standard input.")] = None,
    model: ModelName = None,
    file: Annotated[Path | None, typer.Option(help="Read one text per line from a file.")] = None,
    pair: Annotated[str | None, typer.Option(help="The second text, for models that read two.")] = None,
    method: Annotated[str, typer.Option(help="See `alti methods`.")] = "alti",
    option: Annotated[list[str] | None, typer.Option("--option", "-o", help="Option of the method, like p=2.")] = None,
    target: Annotated[str | None, typer.Option(help="Label or its index; or a token. Default: the prediction.")] = None,
    against: Against = None,
    position: Annotated[int | None, typer.Option(help="Explain the prediction at this token.")] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show tokens instead of words.")] = False,
    bars: Bars = False,
    html: Html = None,
    latex: Latex = None,
    plot: Plot = None,
    kind: Annotated[str, typer.Option(help="What to --plot: tokens, matrix, layers or graph.")] = "tokens",
    layers: Annotated[bool, typer.Option("--layers", help="With --json: the maps per layer too.")] = False,
    truncate: Annotated[bool, typer.Option("--truncate", help="Cut texts that are too long.")] = False,
    batch_size: Annotated[int, typer.Option(help="Texts per forward pass.")] = 32,
    device: Device = "auto",
    dtype: Dtype = None,
    as_json: Json = False,
) -> None:
    """Explain a text, or every line of a file: which tokens does the prediction rest on?"""
    if (text is None) == (file is None):
        raise UsageError("give either a TEXT (- for standard input) or --file FILE")
    for name, path in (("--html", html), ("--latex", latex), ("--plot", plot)):
        writable(name, path)
    drawn = drawing(plot, kind)
    asked: dict[str, Any] = {"method": method, "target": target, "against": against, "position": position}
    asked["layers"] = layers or (plot is not None and kind != "tokens")
    asked |= {"truncate": truncate, **_options(method, option or [])}
    if text is not None and text != "-":
        found = [_load(model, device, dtype).explain(text, pair, **asked)]
        show(found[0], as_json, tokens, bars, html or latex or plot)
        save(found, html, latex, tokens)
        drawn(found[0], tokens)
        return
    if pair is not None or plot is not None:
        raise UsageError("--pair and --plot go with one TEXT, not with the lines of a file")
    lines = Lines(file)
    results = _load(model, device, dtype).explain_all(lines, batch_size=batch_size, **asked)
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


@app.command()
def check(
    model: Annotated[str | None, typer.Argument(help="A Hugging Face hub name or a folder; default: embedded.")] = None,
    device: Device = "auto",
    dtype: Dtype = None,
    as_json: Json = False,
) -> None:
    """Prove that a model is read right: every block, rebuilt from its parts, is what the model computed."""
    loaded = _load(model, device, dtype)
    family, name = loaded.family, loaded.dtype
    errors = {name: loaded.check()}
    if name in ("float16", "bfloat16"):  # half precision rounds too much to tell an exact sum from a nearly right one
        loaded = loaded.in_float32()
        errors["float32"] = loaded.check()
    gap = loaded.completeness()
    if as_json:
        told = {"model": model or loaded.name, "family": family, "exact": True}
        say(json.dumps({**told, "errors": errors, "completeness": gap}))
        return
    worst = [f"worst error {max(found):.1e} in {dtype}" for dtype, found in errors.items()]
    worst += [] if gap is None else [f"linear view complete to {gap:.1e}"]
    say(f"{loaded.name} ({family}): {len(errors[name])} blocks, {', '.join(worst)}: exact")


@app.command()
def compare(
    text: Annotated[str, typer.Argument(help="The text.")],
    model: ModelName = None,
    pair: Annotated[str | None, typer.Option(help="The second text, for models that read two.")] = None,
    methods: Annotated[str, typer.Option(help="Method names, by commas; alti:p=2 gives an option.")] = COMPARED,
    target: Annotated[str | None, typer.Option(help="Label or its index; or a token. Default: the prediction.")] = None,
    against: Against = None,
    position: Annotated[int | None, typer.Option(help="Explain the prediction at this token.")] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show tokens instead of words.")] = False,
    bars: Bars = False,
    html: Html = None,
    latex: Latex = None,
    truncate: Annotated[bool, typer.Option("--truncate", help="Cut a text that is too long.")] = False,
    device: Device = "auto",
    dtype: Dtype = None,
    as_json: Json = False,
) -> None:
    """Explain one text with several methods, side by side."""
    from alti import terminal
    from alti.bench import parsed
    from alti.methods import reads_class

    writable("--html", html)
    writable("--latex", latex)
    specs = [parsed(spec) for spec in _names(methods)]
    if against is not None and (blind := [name for name, _ in specs if not reads_class(name)]):
        print(f"alti: left out, being the same for every class: {', '.join(blind)}", file=sys.stderr)
        specs = [spec for spec in specs if spec.name not in blind]
    loaded = _load(model, device, dtype)
    asked: dict[str, Any] = {"target": target, "against": against, "position": position}
    asked |= {"truncate": truncate, "layers": False}
    found = [loaded.explain(text, pair, method=name, **asked, **options) for name, options in specs]
    if as_json:
        for result in found:
            say(json.dumps(result.to_dict()))
    elif not (html or latex):
        say(terminal.compare(found, words=not tokens, bars=bars))
    save(found, html, latex, tokens)


@app.command()
def bench(
    data: Annotated[str, typer.Option(help="A parquet, JSONL, CSV, TSV or text file, or a hub name (NAME:CONFIG).")],
    model: ModelName = None,
    methods: Annotated[
        str | None, typer.Option(help="Names, by commas; alti:p=2 gives an option. Default: all.")
    ] = None,
    metrics: Annotated[
        str, typer.Option(help="See `alti metrics`; by commas; probability_drop:steps=60 gives an option.")
    ] = "comprehensiveness,sufficiency",
    split: Annotated[str | None, typer.Option(help="Of the data.")] = None,
    text_column: Annotated[str | None, typer.Option(help="Default: text, sentence, …")] = None,
    label_column: Annotated[str | None, typer.Option(help="Default: label.")] = None,
    rationale_column: Annotated[str | None, typer.Option(help="Weights of words, for plausibility.")] = None,
    pair_column: PairColumn = None,
    first: Annotated[int | None, typer.Option(help="Only so many rows, from the top.")] = None,
    sample: Annotated[int | None, typer.Option(help="Only so many rows, drawn with --seed.")] = None,
    seed: Annotated[int, typer.Option()] = 0,
    mask: Annotated[bool, typer.Option("--mask", help="Mask tokens instead of deleting them.")] = False,
    mask_token: Annotated[str | None, typer.Option(help="How the data writes the mask token.")] = None,
    envelope: Annotated[
        bool, typer.Option("--envelope", help="Running extremes, as the paper's released code.")
    ] = False,
    truncate: Annotated[bool, typer.Option("--truncate", help="Cut texts that are too long.")] = False,
    keep_scores: Annotated[bool, typer.Option("--keep-scores", help="Write the scores into the rows too.")] = False,
    out: Annotated[Path, typer.Option(help="The rows; a run that was stopped goes on from there.")] = Path(
        "bench.jsonl"
    ),
    form: Annotated[str, typer.Option("--format", help="text, markdown, latex or csv.")] = "text",
    device: Device = "auto",
    dtype: Dtype = None,
    as_json: Json = False,
) -> None:
    """Compare methods on a data set: which tokens matter, by how much the prediction suffers without them?"""
    from alti.bench import PAPER, Plan, curves, default_methods, load_rows, run, summary, work
    from alti.loading import DEFAULT_NAME
    from alti.tables import key_of, long_csv

    if not out.parent.is_dir() or (out.exists() and not out.is_file()):
        raise UsageError(f"--out {out} cannot be written: give a file in a folder that exists")
    if out.exists() and Path(data).exists() and out.samefile(data):
        raise UsageError(f"--out {out} is the data itself: name another file for the rows")
    if form not in ("text", "markdown", "latex", "csv"):
        raise UsageError(f"--format {form} does not exist: choose text, markdown, latex or csv")
    plan = Plan(
        model=DEFAULT_NAME if model in (None, "default") else str(model),
        data=data,
        methods=tuple(_names(methods)) if methods else PAPER,
        metrics=tuple(_names(metrics)),
        split=split,
        text=text_column,
        label=label_column,
        rationale=rationale_column,
        pair=pair_column,
        first=first,
        sample=sample,
        seed=seed,
        mask=mask,
        mask_token=mask_token,
        envelope=envelope,
        truncate=truncate,
        keep_scores=keep_scores,
    )
    loaded = _load(model, device, dtype)
    if not methods and (fewer := default_methods(loaded)) != PAPER:
        gone = ", ".join(spec for spec in PAPER if spec not in fewer)
        print(f"alti: left out, for want of a second norm in {loaded.family}: {gone}", file=sys.stderr)
        plan = replace(plan, methods=fewer)
    with resumable(out), bar("texts") as update:
        for step in run(plan, loaded, out):
            update(step.texts, step.total)
    plan, rows = load_rows(out)
    if not any("method" in row for row in rows):
        reasons = {row["skipped"] for row in rows if "skipped" in row} or {"it has no rows"}
        raise LoadError(f"no text of {data} could be used: {sorted(reasons)[0]}")
    tables, spent = summary(plan, rows), work(rows)
    if as_json:
        plain = [table.to_dict() for table in tables]
        drawn = {key_of(name): line for name, line in curves(plan, rows).items()}
        say(json.dumps({"tables": plain, "curves": drawn, "work": spent}))
    else:
        say(long_csv(tables) if form == "csv" else "\n".join(getattr(table, form)() for table in tables), end="")
    passes, single, seconds = (f"{spent.get(key, 0):,.0f}" for key in ("passes", "unbatched", "seconds"))
    print(f"alti: {passes} forward passes in {seconds} s, {single} if one by one; rows in {out}", file=sys.stderr)


@app.command()
def train(
    checkpoint: Annotated[str, typer.Argument(help="What to fine-tune: a hub name or a folder.")],
    out: Annotated[Path, typer.Argument(help="The folder for the model; a run that was stopped goes on from there.")],
    data: Annotated[str, typer.Option(help="A parquet, JSONL, CSV or TSV file, or a hub name (NAME:CONFIG).")],
    split: Annotated[str | None, typer.Option(help="To train on.")] = "train",
    validation: Annotated[str | None, typer.Option(help="Split to measure accuracy on; '' for none.")] = "validation",
    text_column: Annotated[str | None, typer.Option(help="Default: text, sentence, …")] = None,
    label_column: Annotated[str | None, typer.Option(help="Default: label.")] = None,
    pair_column: PairColumn = None,
    task: Annotated[str, typer.Option(help="text, or mask: the head reads the mask token.")] = "text",
    mask_token: Annotated[str | None, typer.Option(help="How the data writes the mask token.")] = None,
    first: Annotated[int | None, typer.Option(help="Only so many rows.")] = None,
    epochs: Annotated[float, typer.Option()] = 3.0,
    batch: Annotated[int, typer.Option(help="Texts per step.")] = 32,
    rate: Annotated[float, typer.Option(help="Learning rate.")] = 2e-5,
    tokens: Annotated[int, typer.Option(help="Longer texts are cut.")] = 128,
    seed: Annotated[int, typer.Option()] = 0,
    saves: Annotated[int, typer.Option(help="How often the state is written, to go on from; 0: never.")] = 20,
    as_json: Json = False,
) -> None:
    """Fine-tune a classifier of texts, or of the masked position in them."""
    from transformers.utils.logging import disable_progress_bar, set_verbosity_error

    from alti.train import Recipe, train

    settings: dict[str, Any] = {"epochs": epochs, "batch": batch, "rate": rate, "tokens": tokens, "seed": seed}
    settings |= {"split": split or None, "validation": validation or None, "task": task, "first": first}
    settings |= {"text": text_column, "label": label_column, "pair": pair_column, "mask_token": mask_token}
    recipe = Recipe(checkpoint, data, **settings)
    disable_progress_bar()
    set_verbosity_error()  # that a new head was made is what was asked for
    with resumable(out, kept=saves > 0), bar("steps") as update:
        card = train(recipe, out, saves=saves, watch=update)
    if as_json:
        say(json.dumps(card))
        return
    measured = "" if card["accuracy"] is None else f", accuracy {card['accuracy']:.3f} on {card['validation_texts']}"
    say(f"{out}: trained on {card['texts']} texts{measured}; labels {', '.join(card['labels'])}")


@app.command()
def families(as_json: Json = False) -> None:
    """List the model families that can be read."""
    rows = [
        {
            "family": name,
            "reads": " + ".join(stack.blocks for stack in family.stacks if not (stack.when or "").startswith("not ")),
            "classifier_reads": family.pool,
            "second_norm": any(site.ffn_norm for stack in family.stacks for site in stack.sites),
        }
        for name, family in sorted(FAMILIES.items())
    ]
    table(rows, as_json)


@app.command()
def methods(as_json: Json = False) -> None:
    """List the attribution methods and their options."""
    from alti.methods import METHODS, options_of, summary_of

    own = {name: {key: x for key, x in options_of(name).items() if key != "layers"} for name in METHODS}
    _list("method", [(name, own[name], summary_of(name)) for name in METHODS], as_json)


@app.command()
def metrics(as_json: Json = False) -> None:
    """List the metrics of `alti bench` and their options."""
    from alti.bench import metrics_of

    _list("metric", list(metrics_of()), as_json)


@app.command()
def serve(
    models: Annotated[list[str] | None, typer.Argument(help="Hub names or folders; default: embedded.")] = None,
    host: Annotated[str, typer.Option(help="Where to listen; others than loopback let others in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any that is free.")] = 8765,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open the page.")] = False,
    max_tokens: Annotated[int, typer.Option(help="Longer texts are refused.")] = 512,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Open a web page on this machine: type a text and see which tokens the prediction rests on."""
    from alti.web import serve
    from alti.web.settings import Limits, Settings

    names = tuple(models) if models else (None,)
    serve(Settings(names, host, port, device, dtype, Limits(tokens=max_tokens)), browser=not no_browser)


def _list(kind: str, found: list[tuple[str, dict[str, Any], str]], as_json: bool) -> None:
    """A table of names, options and what they are for."""
    rows = []
    for name, own, what in found:
        shown = own if as_json else " ".join(f"{key}={default}" for key, default in own.items())
        rows.append({kind: name, "options": shown, "what": what})
    table(rows, as_json)


def _names(given: str) -> list[str]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    if not names:
        raise UsageError(f"{given!r} names nothing: give names, separated by commas")
    return list(dict.fromkeys(names))


def _options(method: str, given: list[str]) -> dict[str, Any]:
    from alti.methods import read_options, validate

    options = read_options(given)
    validate(method, options)
    return options


def _load(model: str | None, device: str, dtype: str | None) -> "Model":
    from transformers.utils.logging import disable_progress_bar

    from alti import load

    disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # each retry is a warning; what fails is told once
    return load(model, device=device, dtype=dtype)


if __name__ == "__main__":
    main()
