"""What Ray costs: the same texts through both engines in turn, with the same threads in all.

    python benchmarks/scale.py --texts 20000 --rounds 2 --threads 1
    python benchmarks/scale.py --sizes

Each round takes its part of the texts, first with one engine, then with the other. Reported are
seconds of the clock and of the processors (all processes of Ray included) per text, from the first
shards on; what comes before them is start-up. Other programs on the machine change the clock, and
hardly the ratio of processor seconds.
"""

import argparse
import json
import os
import pickle
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import psutil
import torch

import alti
from alti.engines import Asked, Data, Loading, Local, Plan, Ray, run


def sentences(count: int, seed: int) -> list[str]:
    """Short texts, of 4 to 24 words that the embedded model knows."""
    words = sorted(word for word in alti.load().tokenizer.get_vocab() if word.isalpha())
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=draw.randint(4, 24))) for _ in range(count)]


def processor_seconds(processes: dict[int, float]) -> float:
    """Of this process and all below it, also of those that have ended since they were last seen."""
    here = psutil.Process()
    for process in (here, *here.children(recursive=True)):
        try:
            spent = process.cpu_times()
        except psutil.Error:
            continue
        processes[process.pid] = spent.user + spent.system
    return sum(processes.values())


def measured(engine: Local | Ray, texts: list[str], asked: Asked, skipped: int) -> dict[str, float]:
    """Start-up, and seconds per text behind the first `skipped` shards."""
    folder = Path(tempfile.mkdtemp()) / "out"
    plan = Plan(Data(texts), Loading(device="cpu"), asked, 128)
    processes: dict[int, float] = {}
    begun = time.monotonic()
    marks = []
    for progress in run(plan, folder, engine):
        marks.append((progress.texts, time.monotonic(), processor_seconds(processes)))
    shutil.rmtree(folder.parent)
    (first, since, busy), (last, until, spent) = marks[skipped], marks[-1]
    return {
        "start_up": marks[1][1] - begun,
        "clock": (until - since) / (last - first),
        "processors": (spent - busy) / (last - first),
    }


def compared(texts: list[str], rounds: int, threads: int, actors: int, asked: Asked) -> dict:
    torch.set_num_threads(threads)
    size = len(texts) // rounds
    found: dict[str, list[dict[str, float]]] = {"local": [], "ray": []}
    for number in range(rounds):
        part = texts[number * size : (number + 1) * size]
        order = ("local", "ray") if number % 2 == 0 else ("ray", "local")
        for name in order:
            engine = Local() if name == "local" else Ray(actors=actors)
            found[name].append(measured(engine, part, asked, 1 if name == "local" else actors))
            print(
                f"round {number}: {name} {found[name][-1]}, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    return summary(found) | {"texts": size * rounds, "threads": threads, "actors": actors}


def summary(found: dict[str, list[dict[str, float]]]) -> dict:
    """Medians over the rounds, and the ratio of the two engines in each round."""
    said: dict = {}
    for name, rows in found.items():
        said[name] = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    for key in ("clock", "processors"):
        pairs = zip(found["ray"], found["local"], strict=True)
        ratios = [ray[key] / local[key] for ray, local in pairs]
        said[f"ray / local, {key}"] = [round(statistics.median(ratios), 3), *map(_short, ratios)]
    return said


def _short(ratio: float) -> float:
    return round(ratio, 3)


def sizes(texts: list[str]) -> dict[str, float]:
    """Bytes per text on disk, and texts per second that one process reads and hands out."""
    said: dict[str, float] = {}
    for name, top_k in (("bytes per text, all scores", None), ("bytes per text, top_k = 5", 5)):
        folder = Path(tempfile.mkdtemp()) / "out"
        plan = Plan(Data(texts[:5_000]), Loading(device="cpu"), Asked(top_k=top_k))
        *_, last = run(plan, folder)
        said[name] = sum(file.stat().st_size for file in folder.glob("*.parquet")) / last.texts
        shutil.rmtree(folder.parent)
    file = Path(tempfile.mkdtemp()) / "texts.jsonl"
    file.write_text("".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in enumerate(texts)))
    said["bytes per text of JSONL"] = file.stat().st_size / len(texts)
    since = time.process_time()
    said["scanned per processor second"] = Data(file).scan().texts / (time.process_time() - since)
    since = time.process_time()
    sent = [pickle.dumps(shard) for shard in Data(file).shards(512)]
    said["read per processor second"] = len(texts) / (time.process_time() - since)
    said["bytes per text that an actor is sent"] = sum(map(len, sent)) / len(texts)
    shutil.rmtree(file.parent)
    return said


def start_ray(cores: int) -> None:
    """A Ray with so many cores, an actor for each; its start is no part of what is measured."""
    import ray

    ray.shutdown()
    ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False, logging_level="ERROR")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--method", default="alti")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="in all")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sizes", action="store_true", help="bytes and reading, not engines")
    given = parser.parse_args()
    texts = sentences(given.texts, seed=0)
    if given.sizes:
        print(json.dumps(sizes(texts), indent=1))
        return
    results = []
    for threads in given.threads:
        start_ray(threads)
        asked = Asked({"method": given.method})
        results.append(compared(texts, given.rounds, threads, threads, asked))
        print(json.dumps(results[-1], indent=1), flush=True)
    if given.out:
        given.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
