"""Compares attribution methods on a data set: a row per text and method, written as it goes and resumed where it was.

Texts go in chunks of fixed composition, so that a run that was stopped and continued computes what it would have
computed anyway, to the bit. All questions that the metrics of a chunk ask go through the model together.
"""

import hashlib
import inspect
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from alti import methods
from alti._errors import AltiError, LoadError, UsageError
from alti._files import append, require_file
from alti.experiments.data import Example, Skipped, fingerprint, read, sample
from alti.experiments.evaluate import BY_SIZE, PLAUSIBILITY, Judge, Row, Setting, Spec
from alti.metrics import METRICS, mean_curve
from alti.model.model import Model
from alti.read.modules import stacks_of
from alti.views.tables import Cell, Table, bootstrap, paired

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]  # Windows has none: there, two runs into one file are not kept apart

FORMAT = 1
BESIDE_THE_PLAN = ("alti_bench", "of", "checksum")  # entries of the first line
CHUNK = 32  # texts whose questions go through the model together
SMALLER_IS_BETTER = {"sufficiency"}
CURVES = {"probability_drop"}
PAPER = (
    "random",
    "gradient",
    "input_x_gradient",
    "input_x_gradient:aggregate=mean_abs",
    "input_x_gradient:aggregate=sum",
    "integrated_gradients",
    "integrated_gradients:aggregate=mean_abs",
    "integrated_gradients:aggregate=sum",
    "attention",
    "attention_rollout",
    "norms",
    "globenc",
    "alti",
    "alti:p=2",
    "alti_ln2",
    "occlusion",
    "linear",
    "alti_logit",
    "absence",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run computes; a file of rows belongs to one plan."""

    model: str
    data: str
    methods: tuple[str, ...] = PAPER
    metrics: tuple[str, ...] = ("comprehensiveness", "sufficiency")
    split: str | None = None
    text: str | None = None  # column
    label: str | None = None
    rationale: str | None = None
    pair: str | None = None  # the second text
    first: int | None = None  # only so many rows, from the top
    sample: int | None = None  # only so many, drawn by chance
    seed: int = 0
    mask: bool = False  # removed tokens are masked, not deleted
    mask_token: str | None = (
        None  # how the data writes the mask token, where it writes it its own way
    )
    envelope: bool = False  # the released code's running extreme, in every metric that has it
    truncate: bool = False
    keep_scores: bool = False
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        if not self.methods or not self.metrics:
            raise UsageError("a benchmark needs at least one method and one metric")
        if self.rationale is None and (human := PLAUSIBILITY.keys() & map(_metric, self.metrics)):
            named = ", ".join(sorted(human))
            raise UsageError(
                f"{named} compares with human rationales: name their column (--rationale-column)"
            )
        for name in ("first", "sample", "chunk"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} = {value} is not a number of texts: give 1 or more")
        self.setting()

    def setting(self) -> Setting:
        """What the plan says about every text."""
        specs = {spec: parsed(spec) for spec in self.methods}
        metrics = {spec: parsed_metric(spec, envelope=self.envelope) for spec in self.metrics}
        return Setting(
            specs,
            metrics,
            self.mask,
            self.mask_token,
            self.truncate,
            self.keep_scores,
            self.pair is not None,
        )

    def rows(self) -> Iterator[Example | Skipped]:
        """The rows of the data that the plan covers."""
        columns = {
            "text": self.text,
            "label": self.label,
            "rationale": self.rationale,
            "pair": self.pair,
        }
        found = islice(read(self.data, split=self.split, **columns), self.first)
        return iter(found) if self.sample is None else iter(sample(found, self.sample, self.seed))


def parsed(spec: str) -> Spec:
    """`alti:p=2` is the method alti with the option p = 2."""
    name, *given = spec.split(":")
    options = methods.read_options(given)
    methods.validate(name, options)
    return Spec(name, options)


def parsed_metric(spec: str, *, envelope: bool = False) -> Spec:
    """`probability_drop:steps=60` is the metric probability_drop with the option steps = 60."""
    name, *given = spec.split(":")
    options = methods.read_options(given)
    if name not in METRICS and name not in PLAUSIBILITY:
        raise UsageError(
            f"metric {name!r} does not exist: choose from {', '.join([*METRICS, *PLAUSIBILITY])}"
        )
    own = _options(name)
    methods.validate_options(f"metric {name}", options, own)
    return Spec(name, {"envelope": True, **options} if envelope and "envelope" in own else options)


def metrics_of() -> Iterator[tuple[str, dict[str, Any], str]]:
    """The metrics with their options and what they say, in one line each."""
    for name, metric in {**METRICS, **PLAUSIBILITY}.items():
        yield name, _options(name), (inspect.getdoc(metric) or "").partition("\n")[0]


def _options(metric: str) -> dict[str, Any]:
    asked = {} if metric in PLAUSIBILITY else inspect.signature(METRICS[metric].ask).parameters
    return {
        key: p.default for key, p in asked.items() if p.kind is p.KEYWORD_ONLY and key != "mask_id"
    }


class Progress(NamedTuple):
    """How far a run is."""

    texts: int  # done, those that were done before included
    total: int | None


def default_methods(model: Model) -> tuple[str, ...]:
    """PAPER, without what needs a norm that the model's family does not have."""
    second = any(site.ffn_norm for stack, _ in stacks_of(model.model) for site in stack.sites)
    return tuple(spec for spec in PAPER if second or spec not in ("globenc", "alti_ln2"))


def run(plan: Plan, model: Model, file: Path) -> Iterator[Progress]:
    """Compute the rows of a plan that a file does not hold yet, and add them to it."""
    judge = Judge(model, plan.setting())
    header = {"alti_bench": FORMAT, **asdict(plan), "of": _fingerprint(plan, model)}
    if file.is_dir() or not file.parent.is_dir() or (file.exists() and not file.is_file()):
        raise UsageError(f"{file} cannot be written: give a file in a folder that exists")
    total = sum(1 for _ in plan.rows()) if Path(plan.data).exists() else plan.sample or plan.first
    rows, texts = plan.rows(), 0
    with file.open("ab", buffering=0) as out:
        _alone(out, file)
        done = _done(header, file)
        if not file.stat().st_size:
            _write(out, [header])
        while chunk := list(islice(rows, plan.chunk)):
            if not all(_complete(row.number, plan, done) for row in chunk):
                computed = judge.rows(chunk)
                _write(
                    out,
                    [row for row in computed if (row.get("text"), row.get("method")) not in done],
                )
            texts += len(chunk)
            yield Progress(texts, total)


def _alone(out: FileIO, file: Path) -> None:
    """Two runs that write one file would mix their rows."""
    if fcntl is None:  # Windows has no such locks
        return
    try:
        fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise UsageError(
            f"another run is writing {file}: wait for its end, or name another file"
        ) from None


def _complete(number: int, plan: Plan, done: set[tuple[int, str | None]]) -> bool:
    """Whether a text was passed over, or has a row for every method."""
    return (number, None) in done or done.issuperset((number, spec) for spec in plan.methods)


def _write(out: FileIO, rows: list[Row]) -> None:
    """All at once, and onto the disk: a run that is killed loses a chunk at the most."""
    lines = b"".join(map(_line, rows))
    try:
        append(out.fileno(), lines)
    except OSError as error:
        then = "the same command goes on from there"
        raise LoadError(f"{out.name} could not be written: {error.strerror}; {then}") from error


def _line(row: Row) -> bytes:
    """A row as JSON, with a checksum over the rest of it."""
    try:
        text = json.dumps(row, allow_nan=False)
    except ValueError:
        which = f"text {row.get('text')} with {row.get('method')}"
        raise AltiError(f"{which} has numbers that are not finite: try --dtype float32") from None
    return json.dumps({**row, "checksum": _checksum(text)}).encode() + b"\n"


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_rows(file: Path) -> tuple[Plan, list[Row]]:
    """The plan of a file and its complete rows; LoadError names a line that was changed or damaged.

    Rows of before checksums are read as they are. Lines that are missing are not noticed: a run
    with the same plan computes them.
    """
    header, rows = _content(file)
    try:
        return _plan(header), rows
    except (ValueError, TypeError) as error:
        raise _unreadable(file, error) from error


def _plan(header: Row) -> Plan:
    plain = {key: value for key, value in header.items() if key not in BESIDE_THE_PLAN}
    kinds = {f.name: f.type for f in fields(Plan)}
    if wrong := [key for key, value in plain.items() if not _fits(value, kinds.get(key))]:
        raise ValueError(f"its first line says {wrong[0][:40]!a} = {ascii(plain[wrong[0]])[:40]}")
    plain |= {key: tuple(value) for key, value in plain.items() if isinstance(value, list)}
    return Plan(**plain)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value of JSON is of a field's type."""
    if kind == tuple[str, ...]:
        return isinstance(value, list) and all(isinstance(inner, str) for inner in value)
    if isinstance(value, bool) or kind is None:
        return kind is bool
    return isinstance(value, kind)


def _content(file: Path) -> tuple[Row, list[Row]]:
    """The first line and the others; what is behind the last end of a line is not read."""
    require_file(file, "a file of benchmark rows")
    try:
        first, *lines = file.read_bytes().split(b"\n")[:-1]
        header = _read(first, checksum=False)
        if header["alti_bench"] != FORMAT:
            raise ValueError(f"format {header['alti_bench']}")
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise _unreadable(file, error) from error
    rows = []
    for number, line in enumerate(lines, start=2):
        try:
            rows.append(_read(line, checksum="checksum" in header))
        except (ValueError, RecursionError) as error:
            then = "take it out, and the same run computes it again"
            raise LoadError(f"{file}: line {number} was changed or damaged: {then}") from error
    return header, [{key: value for key, value in row.items() if key != "checksum"} for row in rows]


def _read(line: bytes, *, checksum: bool) -> Row:
    """A line that matches its checksum, which is required or may be missing."""
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("a line is not an object")
    rest = {key: value for key, value in row.items() if key != "checksum"}
    if (checksum or "checksum" in row) and row.get("checksum") != _checksum(json.dumps(rest)):
        raise ValueError("a line does not match its checksum")
    return row


def _unreadable(file: Path, error: Exception) -> LoadError:
    reason = " ".join(str(error).split())[:200]
    what = "is no file of benchmark rows that alti can read"
    return LoadError(f"{file} {what} ({reason}): name another")


def _done(header: Row, file: Path) -> set[tuple[int, str | None]]:
    """What a file holds already; a line that was cut off in the middle is taken out of it."""
    if _cut(header, file.read_bytes()):
        os.truncate(file, 0)
        return set()
    before, rows = _content(file)
    if not any("method" in row for row in rows):  # nothing was computed: nothing to keep
        os.truncate(file, 0)
        return set()
    if "checksum" not in before:
        older = "rows without checksums, of an older alti"
        raise UsageError(f"{file} holds {older}: name another file")
    new = json.loads(json.dumps(header))
    other = [key for key in new if before.get(key) != new[key]]
    if other == ["of"]:
        changed = " and the ".join(
            key for key in new["of"] if before["of"].get(key) != new["of"][key]
        )
        raise UsageError(
            f"{file} holds rows of the same plan, but the {changed} changed since: name another file"
        )
    if other:
        were = ", ".join(f"{key} = {before.get(key)!r}" for key in other)
        raise UsageError(
            f"{file} holds the rows of another run ({were}): name another file, or run that plan"
        )
    with file.open("r+b") as out:
        out.truncate(file.read_bytes().rfind(b"\n") + 1)
    return {(row["text"], row.get("method")) for row in rows if "text" in row}


def _cut(header: Row, content: bytes) -> bool:
    """Whether a file is empty, or holds no more than a beginning or a whole first line of a run of ours."""
    start = b'{"alti_bench": '
    only = b"\n" not in content.rstrip(b"\n")
    return not content or (only and (content.startswith(start) or start.startswith(content)))


def _fingerprint(plan: Plan, model: Model) -> dict[str, str]:
    """What a name does not say: hashes of the data and of the model, and the dtype."""
    found = {"dtype": model.dtype, "model": model.fingerprint()}
    data = fingerprint(plan.data)
    return found if data is None else {**found, "data": data}


def summary(plan: Plan, rows: list[Row]) -> list[Table]:
    """Means with 95 % intervals, and paired differences to the best method of each column."""
    found = {spec: [row for row in rows if row.get("method") == spec] for spec in plan.methods}
    columns = [
        name + kind
        for name in plan.metrics
        if _metric(name) not in CURVES
        for kind in ("", BY_SIZE)
    ]
    values = {
        spec: {column: _column(found[spec], column) for column in columns} for spec in plan.methods
    }
    best = {column: _best(values, column) for column in columns}
    means, apart = [], []
    for spec in plan.methods:
        cells, differences = [], []
        for column in columns:
            own = values[spec][column]
            cells.append(Cell(*bootstrap(list(own.values())), best=spec == best[column]))
            other = values[best[column]][column]
            both = sorted(own.keys() & other.keys())
            differences.append(Cell(*paired([own[i] for i in both], [other[i] for i in both])))
        means.append((spec, tuple(cells)))
        apart.append((spec, tuple(differences)))
    heads = (
        "method",
        *(f"{column} {'↓' if _metric(column) in SMALLER_IS_BETTER else '↑'}" for column in columns),
    )
    title = f"{plan.model} on {plan.data}" + (f" ({plan.split})" if plan.split else "")
    curved = [name for name in plan.metrics if _metric(name) in CURVES]
    tables = [Table(f"{title}: {name}", *_steps(name, plan, rows)) for name in curved]
    if columns:
        apart_title = f"{title}: difference to the best of each column"
        tables.insert(0, Table(apart_title, heads, tuple(apart), "In pairs of texts."))
    return [Table(title, heads, tuple(means), _note(plan, rows)), *tables] if columns else tables


def curves(plan: Plan, rows: list[Row]) -> dict[str, Any]:
    """Mean probability after each removal, and how many texts are left, by method and ranking."""
    found: dict[str, Any] = {}
    for spec in plan.methods:
        for column in (
            name + kind
            for name in plan.metrics
            if _metric(name) in CURVES
            for kind in ("", BY_SIZE)
        ):
            lines = [
                row["values"].get(column, row["values"].get(column.removesuffix(BY_SIZE)))
                for row in rows
                if row.get("method") == spec
            ]
            means, counts = mean_curve([line for line in lines if line is not None])
            found[f"{spec} {column}"] = {"mean": list(means), "texts": list(counts)}
    return found


def _steps(
    metric: str, plan: Plan, rows: list[Row]
) -> tuple[tuple[str, ...], tuple[Any, ...], str]:
    """Columns, rows and note of a curve's table: the mean after some numbers of removed tokens, and texts left."""
    found = curves(plan, rows)
    longest = max((len(found[f"{spec} {metric}"]["mean"]) for spec in plan.methods), default=0)
    steps = [step for step in (0, 1, 2, 3, 5, 10, 20, 30, 60) if step < longest]
    left = found[f"{plan.methods[0]} {metric}"]["texts"]
    lines = [
        (spec, tuple(Cell(found[f"{spec} {metric}"]["mean"][step]) for step in steps))
        for spec in plan.methods
    ]
    counts = ", ".join(f"{left[step]} at {step}" for step in steps)
    return (
        ("tokens removed", *map(str, steps)),
        tuple(lines),
        f"Texts left: {counts}. {_note(plan, rows)}",
    )


def _metric(column: str) -> str:
    """The metric's own name, without its options."""
    return column.removesuffix(BY_SIZE).partition(":")[0]


def _column(rows: list[Row], column: str) -> dict[int, float]:
    """A metric's value for every text where it is defined; scores that are never negative rank alike both ways."""
    plain = column.removesuffix(BY_SIZE)
    found = {row["text"]: row["values"].get(column, row["values"].get(plain)) for row in rows}
    # sorted: what a run adds later stands at the end of the file
    return {text: value for text, value in sorted(found.items()) if value is not None}


def _best(values: dict[str, dict[str, dict[int, float]]], column: str) -> str:
    sign = -1 if _metric(column) in SMALLER_IS_BETTER else 1

    def mean(spec: str) -> float:
        found = list(values[spec][column].values())
        return sign * sum(found) / len(found) if found else -math.inf

    return max(values, key=mean)


def _note(plan: Plan, rows: list[Row]) -> str:
    texts = {row["text"] for row in rows if "method" in row}
    passed = [row for row in rows if "skipped" in row]
    undefined = {row["text"] for row in rows if None in row.get("values", {}).values()}
    count = f"{len(texts)} text{'' if len(texts) == 1 else 's'}"
    intervals = "95 % bootstrap intervals; " if len(texts) > 1 else ""
    parts = [f"{count}; {intervals}{BY_SIZE.strip()}: ranked by the size of scores."]
    if right := {row["text"]: row["right"] for row in rows if "right" in row}:
        labelled = "them" if len(right) == len(texts) else f"the {len(right)} whose label it knows"
        parts.append(
            f"The model is right on {100 * sum(right.values()) / len(right):.1f} % of {labelled}."
        )
    if cut := {row["text"] for row in rows if row.get("cut")}:
        parts.append(f"Cut to the model's length: {len(cut)} of them.")
    if undefined:
        parts.append(f"Undefined and left out of a mean: {len(undefined)} texts.")
    reasons = Counter(
        re.sub(r"\d+", "…", row["skipped"]) for row in passed
    )  # texts differ in length, not in kind
    parts += [f"Passed over: {count} ({reason})." for reason, count in reasons.items()]
    return " ".join(parts)


def work(rows: list[Row]) -> dict[str, float]:
    """What the run took: passes through the model, sequences, seconds."""
    total: dict[str, float] = {}
    for row in rows:
        for key, value in row.get("work", {}).items():
            total[key] = total.get(key, 0) + value
    return total
