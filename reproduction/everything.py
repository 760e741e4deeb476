"""Train a backbone on the data sets and run every experiment with it; can be resumed.

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
    options = parser.parse_args()
    with ThreadPoolExecutor(options.jobs) as pool:
        failed = sum(pool.map(run, chains(options)))
        failed += sum(pool.map(run, [[command] for command in over_seeds(options)]))
    sys.exit(1 if failed else 0)


def over_seeds(options: argparse.Namespace) -> list[Command]:
    """Commands that need the models of all seeds."""
    if options.seeds < 2:
        return []
    seeds = ("--seeds", str(options.seeds))
    commands: list[Command] = [("agreement", options.backbone, *seeds)]
    if "sst2" in options.curves:
        commands.append(("curves", options.backbone, "sst2", *seeds, "--texts", "200"))
    return commands


def chains(options: argparse.Namespace) -> list[list[Command]]:
    """Commands that follow one another, for each model."""
    backbone = options.backbone
    saves = ("--saves", str(options.saves))
    by_data: list[list[Command]] = []
    for data in options.data:
        chain: list[Command] = [("train", backbone, data, *saves), ("maps", backbone, data)]
        if data == "sst2":
            chain.append(("anisotropy", backbone, data))
        chain.append(("faithfulness", backbone, data))
        if data in options.curves:
            chain.append(("curves", backbone, data))
        by_data.append(chain)
    by_seed: list[list[Command]] = [
        [("train", backbone, "sst2", "--seed", str(seed), *saves)]
        for seed in range(1, options.seeds)
    ]
    return by_data + by_seed


def run(chain: list[Command]) -> bool:
    """Whether a command of the chain failed; those after it are not run."""
    for name, *arguments in chain:
        log = BUILD / "logs" / f"{'-'.join([name, *arguments])}.log".replace("--", "")
        log.parent.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        with log.open("w") as out:
            module = [sys.executable, "-m", f"reproduction.{name}", *arguments]
            code = subprocess.call(module, stdout=out, stderr=out, cwd=Path(__file__).parents[1])
        outcome = "done" if code == 0 else f"failed, see {log}"
        seconds = time.monotonic() - start
        print(f"{name} {' '.join(arguments)}: {outcome} ({seconds:.0f} s)", flush=True)
        if code:
            return True
    return False


if __name__ == "__main__":
    main()
