"""Train a backbone on the data sets and run every experiment with it, several at a time; goes on where it was stopped.

python -m reproduction.everything gte-small --seeds 10 --jobs 8
"""

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from reproduction.settings import BACKBONES, BUILD, DATA

Command = tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("backbone", choices=BACKBONES)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument(
        "--seeds", type=int, default=1, help="fine-tuning seeds on SST-2, for the agreement"
    )
    parser.add_argument(
        "--curves", nargs="*", choices=DATA, default=[], help="data sets to draw curves for"
    )
    parser.add_argument("--jobs", type=int, default=1, help="commands that run at the same time")
    parser.add_argument(
        "--saves", type=int, default=5, help="how often a training writes its state"
    )
    asked = parser.parse_args()
    with ThreadPoolExecutor(asked.jobs) as pool:
        failed = sum(pool.map(run, chains(asked)))
        after = (
            [("agreement", asked.backbone, "--seeds", str(asked.seeds))] if asked.seeds > 1 else []
        )
        if asked.seeds > 1 and "sst2" in asked.curves:
            after.append(
                ("curves", asked.backbone, "sst2", "--seeds", str(asked.seeds), "--texts", "200")
            )
        failed += sum(pool.map(run, [[command] for command in after]))
    sys.exit(1 if failed else 0)


def chains(asked: argparse.Namespace) -> list[list[Command]]:
    """Commands that follow one another, for each model."""
    backbone, saves = asked.backbone, ("--saves", str(asked.saves))
    found: list[list[Command]] = []
    for data in asked.data:
        chain: list[Command] = [("train", backbone, data, *saves), ("maps", backbone, data)]
        chain += [("anisotropy", backbone, data)] if data == "sst2" else []
        chain += [("faithfulness", backbone, data)]
        chain += [("curves", backbone, data)] if data in asked.curves else []
        found.append(chain)
    return found + [
        [("train", backbone, "sst2", "--seed", str(seed), *saves)] for seed in range(1, asked.seeds)
    ]


def run(chain: list[Command]) -> bool:
    """Whether a command of the chain failed; those behind it are left out."""
    for name, *arguments in chain:
        log = BUILD / "logs" / f"{'-'.join([name, *arguments])}.log".replace("--", "")
        log.parent.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        with log.open("w") as out:
            module = [sys.executable, "-m", f"reproduction.{name}", *arguments]
            code = subprocess.call(module, stdout=out, stderr=out, cwd=Path(__file__).parents[1])
        said = "done" if code == 0 else f"failed, see {log}"
        print(
            f"{name} {' '.join(arguments)}: {said} ({time.monotonic() - start:.0f} s)", flush=True
        )
        if code:
            return True
    return False


if __name__ == "__main__":
    main()
