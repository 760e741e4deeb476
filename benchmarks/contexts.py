"""Which sources of a prompt made a language model say this: every method, on four data sets.

python benchmarks/contexts.py SmolLM2-135M-Instruct DATA OUT                  # everything
python benchmarks/contexts.py SmolLM2-135M-Instruct DATA OUT --only nq10 --shards 4
python benchmarks/contexts.py SmolLM2-135M-Instruct DATA OUT --tables         # from the rows
python benchmarks/contexts.py SmolLM2-135M-Instruct DATA benchmarks/results --tables  # of the docs

DATA is a folder with nq10, xquad_en, kv75 and minimal_pairs as parquet files. The second half of
the rows is used (of each task, for minimal_pairs); with --half first, the half that constants were
chosen on. Rows go to OUT, one file per data set and shard; a run that was stopped goes on. Tables
are made from the rows in OUT, or in folders of it, also where gzip has packed them.
"""

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from alti.experiments.bench import Study, load_rows
from alti.experiments.formats import rows_of
from alti.experiments.verdicts import verdicts

Row = dict[str, Any]
CHEAP = "random,alti,linear:of=log_prob,absence,dimming,consensus"
ABLATIONS = "leave_one_out,contextcite:ablations=32,contextcite,surrogate:ablations=6,surrogate"
RECORDS = 15  # of kv75, if no other number is asked for: all 75 are 5,300 tokens


@dataclass(frozen=True, slots=True)
class Part:
    """One row of the benchmark."""

    file: str
    texts: int  # or of each task
    methods: str
    options: tuple[str, ...]
    rival: str = "leave_one_out"


PARTS = {
    "nq10": Part(
        "nq10",
        200,
        f"{CHEAP},dimming:points=3,dimming:draws=4,{ABLATIONS}",
        ("--task", "answer", "--distractors", "3"),
    ),
    "nq10-all": Part(
        "nq10",
        40,
        "random,linear:of=log_prob,absence,dimming,consensus,leave_one_out,"
        "contextcite:ablations=32,surrogate",
        ("--task", "answer"),
    ),
    "xquad": Part("xquad_en", 150, f"{CHEAP},{ABLATIONS}", ("--task", "evidence")),
    "kv": Part("kv75", 60, f"{CHEAP},{ABLATIONS}", ("--task", "evidence", "--group", "line")),
    "minimal_pairs": Part(
        "minimal_pairs",
        60,
        "random,alti,linear,absence,absence:rule=two_views,dimming,consensus,occlusion:of=logit",
        ("--task", "next"),
        rival="occlusion:of=logit",
    ),
}


def half_of(rows: list[Row], half: str) -> list[Row]:
    """The first or the second half, of each task where there are some."""
    by_task: dict[Any, list[Row]] = {}
    for row in rows:
        by_task.setdefault(row.get("task"), []).append(row)
    chosen: list[Row] = []
    for own in by_task.values():
        middle = len(own) // 2
        chosen += own[:middle] if half == "first" else own[middle:]
    return chosen


def some_of(rows: list[Row], count: int) -> list[Row]:
    """The first rows, of each task where there are some."""
    taken: dict[Any, int] = {}
    kept = []
    for row in rows:
        task = row.get("task")
        taken[task] = taken.get(task, 0) + 1
        if taken[task] <= count:
            kept.append(row)
    return kept


def shortened(row: Row, records: int) -> Row:
    """A retrieval task with fewer records, in their order; the asked one is among them."""
    if len(row.get("records", ())) <= records:
        return row
    keys = [record["key"] for record in row["records"]]
    asked = keys.index(row["key"])
    draw = random.Random(row["key"])
    others = draw.sample([i for i in range(len(keys)) if i != asked], records - 1)
    return {**row, "records": [row["records"][i] for i in sorted([asked, *others])]}


def shards(part: Part, data: Path, out: Path, name: str, options: Any) -> Iterator[Path]:
    """The rows of a part, written as files of which each is run by itself."""
    rows = [row for row in rows_of(data / f"{part.file}.parquet") if isinstance(row, dict)]
    rows = some_of(half_of(rows, options.half), options.texts or part.texts)
    lines = [json.dumps(shortened(row, options.records)) + "\n" for row in rows]
    for number in range(options.shards):
        file = out / f"questions-{name}-{number}of{options.shards}.jsonl"
        file.write_text("".join(lines[number :: options.shards]))
        yield file


def run(name: str, options: Any) -> None:
    """Compute all rows of a part, its shards side by side."""
    part = PARTS[name]
    files = list(shards(part, options.data, options.out, name, options))
    command = [sys.executable, "-m", "alti", "bench", "--model", options.model, *part.options]
    command += ["--methods", options.methods or part.methods, "--dtype", "float32", "--json"]
    running = [
        subprocess.Popen(
            [*command, "--data", str(file), "--out", str(rows_file(file))],
            stdout=subprocess.DEVNULL,
        )
        for file in files
    ]
    codes = [process.wait() for process in running]  # all of them end first
    if any(codes):
        raise SystemExit(f"{name} failed: the same command goes on where it was")


def rows_file(questions: Path) -> Path:
    """Where the rows about the questions of a file go."""
    return questions.with_name(questions.name.removeprefix("questions-"))


def unpacked_rows(file: Path) -> tuple[Study, list[Row]]:
    """The study of a file and its rows; the file may be packed."""
    if file.suffix != ".gz":
        return load_rows(file)
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / file.stem
        plain.write_bytes(gzip.decompress(file.read_bytes()))
        return load_rows(plain)


def merged_rows(name: str, out: Path) -> tuple[Study, list[Row]] | None:
    """The rows of all shards of a part, as those of one study; None where there are none."""
    found = sorted(out.rglob(f"{name}-[0-9]*of*.jsonl*"), reverse=True)
    files = {
        file.name.removesuffix(".gz"): file for file in found
    }  # one that is unpacked too: that
    merged: list[Row] = []
    for number, (_, file) in enumerate(sorted(files.items())):
        study, rows = unpacked_rows(file)
        merged += [
            {**row, "text": row["text"] * len(files) + number} if "text" in row else row
            for row in rows
        ]
    return (replace(study, data=name), merged) if files else None


def tables(name: str, out: Path, rival: str | None = None) -> None:
    """Print the tables of a part from its rows."""
    if (found := merged_rows(name, out)) is None:
        return
    print(f"\n### {name}\n")
    for table in verdicts(*found, rival or PARTS[name].rival)[:2]:
        print(table.markdown(), "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--half", choices=("first", "second"), default="second")
    parser.add_argument("--texts", type=int, help="fewer rows than the table has")
    parser.add_argument("--records", type=int, default=RECORDS, help="of a retrieval task: 1 to 75")
    parser.add_argument("--methods", help="others than the table has, separated by commas")
    parser.add_argument("--shards", type=int, default=1, help="processes side by side")
    parser.add_argument("--tables", action="store_true", help="print what is there, run nothing")
    parser.add_argument("--rival", help="whom differences are to, if not whom the table has")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        if not options.tables:
            run(name, options)
        tables(name, options.out, options.rival)


if __name__ == "__main__":
    main()
