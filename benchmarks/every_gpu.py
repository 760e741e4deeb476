"""Everything that needs a GPU, in less than ten minutes: its tests, and the tables of the docs.

python benchmarks/every_gpu.py FOLDER [--parts tests gpu …]

What each part prints goes to the terminal and, line by line, to a file of the folder, so that a run
that is stopped leaves what it has found. A part that fails does not stop the others.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
BUDGET = 570  # seconds for all parts
TESTS = ("-m", "pytest", "--tb=short", "--durations=5", "-v")
LONG = ("benchmarks/long.py", "--device", "cuda", "--dtype", "bfloat16", "--runs", "2")
PARTS = {  # name: the most seconds, and what is run
    "tests_long": (150, (*TESTS, "tests/test_gpu_long.py")),
    "long_8b": (210, (*LONG, "--shape", "8b", "--tokens", "5000", "8192", "32768")),
    "long_135m": (60, (*LONG, "--shape", "135m", "--tokens", "8192")),
    "tests": (180, (*TESTS, "tests/test_gpu.py")),
    "gpu": (BUDGET, ("benchmarks/gpu.py",)),
}


def run(command: tuple[str, ...], file: Path, limit: float) -> str:
    """How a part ended; its output is shown and written as it comes."""
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "ALTI_TEST_GPU": "1", "PYTHONPATH": os.pathsep.join(paths)}
    call = ["timeout", "--signal=INT", "--kill-after=5", f"{limit:.0f}", sys.executable, "-u"]
    started = subprocess.Popen(
        [*call, *command],
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
    return {0: "done", 124: f"stopped after {limit:.0f} s"}.get(started.returncode, "failed")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch sees no CUDA GPU here: run this on a machine that has one")
    options.folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    ends = []
    for name in options.parts:
        limit, command = PARTS[name]
        left = BUDGET - (time.monotonic() - start)
        before = time.monotonic()
        end = run(command, options.folder / f"{name}.txt", min(limit, left)) if left > 1 else "left"
        ends.append(f"{name}: {end}, {time.monotonic() - before:.0f} s")
        (options.folder / "summary.txt").write_text("\n".join(ends) + "\n", encoding="utf-8")
    print("\n".join(ends))
    sys.exit(any(": done" not in end for end in ends))


if __name__ == "__main__":
    main()
