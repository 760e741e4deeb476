"""Many texts into a folder, on this machine or on Ray, and that folder read back."""

import json
import shutil
import time
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alti._characters import harmless, note, plain, plural
from alti._errors import AltiError, UsageError
from alti.cli.console import bar, no_input, resumable, say, table
from alti.cli.shared import Bars, Html, Json, Latex, Output, Plot, Tokens

if TYPE_CHECKING:
    from alti.engines import Plan, Progress, Results
    from alti.engines.local import Engine

Out = Annotated[
    Path | None,
    typer.Option(help="With --file: a folder for the results; a stopped run goes on from it."),
]
EngineName = Annotated[str, typer.Option("--engine", help="local (this machine) or ray.")]
Address = Annotated[
    str | None, typer.Option(help="Of a Ray cluster; default: RAY_ADDRESS, or a Ray of its own.")
]
Actors = Annotated[
    int | None,
    typer.Option(help="Of Ray: copies of the model; default: one per GPU, or 4 per node."),
]
Gpus = Annotated[float, typer.Option(help="Of Ray: GPUs of each actor, like 1 or 0.5.")]
TopK = Annotated[
    int | None, typer.Option(help="With --out: keep the K tokens that count most; default: all.")
]
ShardRows = Annotated[
    int | None, typer.Option(help="With --out: texts per Parquet file; default: 512.")
]
IdColumn = Annotated[str | None, typer.Option(help="With --out; default: id, or row numbers.")]

SHOWN = 20  # rows of a table that nobody asked the length of
WORDS = 3  # the best of each row
BESIDE = 58  # characters of the other columns, mostly


@dataclass(frozen=True, slots=True)
class Folder:
    """Where the results of a file go, and who does the work; all of it goes with --out."""

    out: Path | None
    engine: str = "local"
    address: str | None = None
    actors: int | None = None
    gpus: float = 0
    top_k: int | None = None
    shard_rows: int | None = None
    split: str | None = None
    text_column: str | None = None
    pair_column: str | None = None
    id_column: str | None = None

    def __post_init__(self) -> None:
        if self.out is not None:
            self._require_folder(self.out)
            return
        given = [each for each in fields(self) if getattr(self, each.name) != _default(each)]
        if given:
            name = given[0].name.replace("_", "-")
            raise UsageError(f"--{name} goes with a folder of results: add --file and --out FOLDER")

    @staticmethod
    def _require_folder(out: Path) -> None:
        if out.exists() and not out.is_dir():
            raise UsageError(
                f"--out {out} is a file: name a folder, or write one file with --json > {out}"
            )

    def explain(
        self,
        file: Path | None,
        loading: tuple[Any, ...],
        options: dict[str, Any],
        batch_size: int,
        as_json: bool,
    ) -> None:
        """Explain the texts of a file, with a bar, and say what was done."""
        from alti.engines import Asked, Data, Loading, Plan, Ray, engine_of

        if file is None or self.out is None:
            raise UsageError("--out holds the results of many texts: name them with --file")
        engine = engine_of(self.engine, self.address, self.actors, self.gpus)
        name, device, *rest = loading
        if isinstance(engine, Ray):
            device = engine.device(device)
        columns = (self.split, self.text_column, self.pair_column, self.id_column)
        asked = Asked(options, batch_size, self.top_k)
        model = Loading(name, device, *rest)
        plan = Plan(Data(str(file), *columns), model, asked, self.shard_rows)
        since = time.monotonic()
        _explained(self.out, as_json, self._run(plan, engine), time.monotonic() - since)

    def _run(self, plan: "Plan", engine: "Engine") -> "Progress":
        from alti.engines import Progress, run

        assert self.out is not None
        last = Progress(0, None, 0, 0)
        with resumable(self.out), no_input(), bar("texts") as update:
            for last in run(plan, self.out, engine):
                if not last.new:
                    self._note_start(last)
                update(last.texts, last.total)
        return last

    def _note_start(self, progress: "Progress") -> None:
        if held := progress.texts:
            note(f"{self.out} holds {held:,} {plural('text', held)} already")
        if self.engine == "ray" and held != progress.total:
            note("Ray starts its actors, and each of them loads the model")


def benched(task: str, loading: tuple[Any, ...], *, engine_name: str, **ray: Any) -> Any:
    """How a benchmark is run: in this process, or with copies of the model on Ray."""
    from alti.engines import Loading, Ray, bench, engine_of
    from alti.experiments.bench import run

    engine = engine_of(engine_name, **ray)
    if not isinstance(engine, Ray):
        return run
    if task == "alignment":
        raise UsageError("--engine ray runs no --task alignment yet: leave it out")
    name, device, *rest = loading
    copy = Loading(name, engine.device(device), *rest).absolute()
    return lambda plan, model, out: bench.run(plan, model, copy, out, engine)


def _default(field: Any) -> Any:
    return None if field.name == "out" else field.default


def _explained(out: Path, as_json: bool, progress: "Progress", seconds: float) -> None:
    """Say what a run did."""
    if as_json:
        facts = progress._asdict() | {"seconds": round(seconds, 3)}
        say(json.dumps({"out": str(out), **facts}))
    else:
        failed = f", {progress.failed:,} of them failed" if progress.failed else ""
        said = f"{progress.new:,} {plural('text', progress.new)} explained{failed}"
        say(f"{said}, {progress.texts:,} in {out}")
        note(f"{seconds:.0f} s; see them with: alti results {out}")
    if progress.failed and progress.failed == progress.new:
        raise AltiError(f"no text could be explained: alti results {out} --failed says why")


def results(
    path: Annotated[Path, typer.Argument(help="A folder that alti explain --out has written.")],
    name: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Show the result of this text.")
    ] = None,
    first: Annotated[int | None, typer.Option(help="Show the first N rows; default: 20.")] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Show the texts that could not be explained, and why.")
    ] = False,
    group: Annotated[
        str | None, typer.Option(help="With an ID: add scores up by word, sentence or line.")
    ] = None,
    tokens: Tokens = False,
    bars: Bars = False,
    html: Html = None,
    latex: Latex = None,
    plot: Plot = None,
    kind: Annotated[
        str, typer.Option(help="What to --plot: tokens, matrix, layers or graph.")
    ] = "tokens",
    as_json: Json = False,
) -> None:
    """Read back what `alti explain --out` wrote: a table, or the result of one text."""
    from alti.engines import results

    output = Output(as_json, tokens, bars, html, latex, plot, kind, group)
    found = results(path)
    if name is None:
        if html or latex or plot or group:
            raise UsageError("--html, --latex, --plot and --group show one text: give its ID")
        _list(found, failed, first, as_json, tokens)
        return
    if failed or first is not None:
        raise UsageError("--failed and --first list texts: leave the ID out")
    result = found[name]
    output.show(result)
    output.save([result])
    output.draw(result)


def _list(found: "Results", failed: bool, first: int | None, as_json: bool, tokens: bool) -> None:
    if first is not None and first < 1:
        raise UsageError(f"--first {first} is not a number of rows: give 1 or more")
    rows = (row for row in found.rows() if not failed or row["error"] is not None)
    if as_json:
        from alti.engines.reading import COLUMNS

        for row in islice(rows, first):
            say(json.dumps({name: row[name] for name in COLUMNS}))
        return
    shown = [_line(found, row, tokens) for row in islice(rows, first or SHOWN)]
    if shown:
        table(shown, False)
    _note_rest(found, failed, len(shown))


def _line(found: "Results", row: dict[str, Any], tokens: bool) -> dict[str, Any]:
    """A row of the table: the best words of a text, or why there are none."""
    text = plain(row["text"] or "")
    width = max(20, shutil.get_terminal_size().columns - BESIDE)
    text = text if len(text) <= width else f"{text[: width - 1]}…"
    line = {"id": plain(row["id"]), "label": "failed", "p": ""}
    if row["error"] is not None:
        return line | {"rests_on": harmless(row["error"]), "text": text}
    result = found.attribution(row)
    by_word = result if tokens or result.source.by != "token" else result.words()
    best = ", ".join(f"{plain(word.strip())} {score:.2f}" for word, score in by_word.top(WORDS))
    chance = "" if result.probability is None else f"{result.probability:.3f}"
    line |= {"label": plain(result.label or ""), "p": chance}
    return line | {"rests_on": best, "text": text}


def _note_rest(found: "Results", failed: bool, shown: int) -> None:
    complete = found.total in (None, len(found))
    of = "" if complete else f" of {found.total:,}: the run is not complete"
    what = plural("failed text" if failed else "text", shown)
    note(f"{shown} {what} shown; {found.store.folder} holds {len(found):,}{of}")
