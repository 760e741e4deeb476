"""Everything that needs a GPU, in less than ten minutes: its tests, and the tables of the docs.

python benchmarks/every_gpu.py FOLDER [--parts tests_long long_8b …]

The tests run side by side, then what is timed, one part after another. What a part prints goes to
the terminal and, line by line, to a file of the folder, so that a run that is stopped leaves what
it has found. A part that fails does not stop the others.
"""

import argparse
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import torch

ROOT = Path(__file__).parents[1]
BUDGET = 570  # seconds for all parts
TESTS = ("-m", "pytest", "--tb=short", "--durations=5", "-vv")  # a line for each test
LONG = ("benchmarks/long.py", "--device", "cuda", "--dtype", "bfloat16", "--runs", "2")


class Part(NamedTuple):
    limit: float  # seconds, at most
    command: tuple[str, ...]


BLOCKS, KERNELS = "blocks_are or half_precision", "triton_equals"
OTHERS = f"not ({BLOCKS} or {KERNELS})"
TOGETHER = {  # tests wait for compilers, each on a core of its own
    "tests": Part(210, (*TESTS, "tests/test_gpu.py", "-k", OTHERS)),
    "tests_blocks": Part(210, (*TESTS, "tests/test_gpu.py", "-k", BLOCKS)),
    "tests_kernels": Part(210, (*TESTS, "tests/test_gpu.py", "-k", KERNELS)),
    "tests_long": Part(210, (*TESTS, "tests/test_gpu_long.py")),
}
ALONE = {  # timed, the most important first
    "long_8b": Part(210, (*LONG, "--shape", "8b", "--tokens", "5000", "8192", "32768")),
    "long_135m": Part(80, (*LONG, "--shape", "135m", "--tokens", "8192")),
    "gpu": Part(BUDGET, ("benchmarks/gpu.py",)),
}
PARTS = {**TOGETHER, **ALONE}


def run(part: Part, file: Path, limit: float) -> str:
    """How a part ended, and after how long; its output is shown and written as it comes."""
    if limit < 1:
        return "no time was left"
    if "pytest" in part.command and find_spec("pytest") is None:
        return "failed: this Python has no pytest"
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "ALTI_TEST_GPU": "1", "PYTHONPATH": os.pathsep.join(paths)}
    call = ["timeout", "--signal=INT", "--kill-after=5", f"{limit:.0f}", sys.executable, "-u"]
    start = time.monotonic()
    started = subprocess.Popen(
        [*call, *part.command],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert started.stdout is not None
    with started, file.open("w", buffering=1, encoding="utf-8") as kept:
        for line in started.stdout:
            kept.write(line)
            print(line, end="", flush=True)
    end = {0: "done", 124: "stopped"}.get(started.returncode, "failed")
    return f"{end} after {time.monotonic() - start:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch sees no CUDA GPU here: run this on a machine that has one")
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + BUDGET
    ends: dict[str, str] = {}

    def note(name: str) -> None:
        limit = min(PARTS[name].limit, until - time.monotonic())
        ends[name] = run(PARTS[name], folder / f"{name}.txt", limit)
        lines = [f"{name}: {end}" for name, end in ends.items()]
        (folder / "summary.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")

    together = [Thread(target=note, args=[name]) for name in TOGETHER if name in options.parts]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    for name in ALONE:
        if name in options.parts:
            note(name)
    print((folder / "summary.txt").read_text(encoding="utf-8"), end="")
    sys.exit(any(not end.startswith("done") for end in ends.values()))


if __name__ == "__main__":
    main()
