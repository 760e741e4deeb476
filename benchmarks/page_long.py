"""How long the page takes for a prompt of 4,000 tokens: first colours, progress, the slider.

python benchmarks/page_long.py MODEL     MODEL: a causal language model (needs Chromium)
"""

import json
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import torch

import alti
from alti.web.desk import Desk
from alti.web.settings import Settings

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from browser import Browser  # noqa: E402
from serving import running  # noqa: E402

TOKENS = 4000
SENTENCES = (
    "The city has many bridges over the river, and people walk along them at night. ",
    "It often rains for an hour in the morning before the sun comes back. ",
    "Ships pass on their way into the harbour, and visitors take a boat to the island. ",
)
QUESTION = "The tower was finished in 1889. In short: the tower was finished in"
ANSWER = " 1889"
FREE = "!!document.querySelector('#prompted') && !document.body.hasAttribute('aria-busy')"
TOLD = "document.querySelector('#waiting-why').textContent"
UNFOLD = """document.querySelectorAll('.fold').forEach(f => { f.open = true; f.fill() });
    document.body.offsetHeight; Number(document.querySelector('#answer-layer').max)"""
SLIDE = """(async () => { // until the frame that shows it
    const slider = document.querySelector('#answer-layer'); const start = performance.now();
    slider.value = %d; slider.dispatchEvent(new Event('input')); document.body.offsetHeight;
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    return performance.now() - start })()"""


def prompt_of(model: alti.Model) -> str:
    """Sentences up to so many tokens, and what is asked at the end."""
    text = ""
    number = 0
    while len(model.encoder.encode(text + QUESTION).ids) < TOKENS:
        text += SENTENCES[number % len(SENTENCES)] * 4
        number += 1
    return text + QUESTION


def forward(model: alti.Model, prompt: str) -> tuple[float, float]:
    """Seconds of one forward pass by the clock and of the processor, the best of two."""
    ids = torch.tensor([model.encoder.encode(prompt).ids])
    times = []
    for _ in range(2):
        start = time.perf_counter(), time.process_time()
        with torch.no_grad():
            model.model(ids, logits_to_keep=1)
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return min(times)


def answered(folder: Path, prompt: str) -> float:
    """Seconds of the processor in which the server's desk explains the answer."""
    desk = Desk(Settings((str(folder),), device="cpu"))
    names = ("chat", "documents", "answer_ids", "part", "against")
    question = {"model": folder.name, "answer": ANSWER, "by": "word", "tokens": True}
    question |= dict.fromkeys(names) | {"method": "absence"}
    desk.answer({**question, "text": "The tower was finished in"})  # proofs, once
    start = time.process_time()
    desk.answer({**question, "text": prompt})
    return time.process_time() - start


def opened(browser: Browser, address: str, name: str, prompt: str) -> tuple[float, list[str]]:
    """Seconds to the first colours, and what the page said before."""
    asked = json.dumps({"form": "text", "text": prompt, "answer": ANSWER})
    told: list[str] = []
    start = time.perf_counter()
    browser.open(f"{address}/#model={name}&ask=answer&prompt={quote(asked)}")
    while not browser.run(FREE):
        told.append(str(browser.run(TOLD)))
        time.sleep(0.2)
    return time.perf_counter() - start, sorted(set(told))


def slid(browser: Browser) -> tuple[list[float], list[float]]:
    """Milliseconds of each move of the slider, all unfolded: by the clock, of the processor."""
    layers = browser.run(UNFOLD)
    assert isinstance(layers, int)
    clock, processor = [], []
    for layer in range(1, layers + 1):
        before = browser.work()
        clock.append(float(str(browser.run(SLIDE % layer))))
        processor.append(browser.work() - before)
    return clock, processor


def main(folder: Path) -> None:
    torch.set_num_threads(1)  # as the server of the tests
    model = alti.load(str(folder), device="cpu")
    prompt = prompt_of(model)
    once, busy = forward(model, prompt)
    tokens = len(model.encoder.encode(prompt).ids)
    del model
    print(f"{tokens} tokens, one forward pass {once:.1f} s, {busy:.1f} s of the processor")
    print(
        f"first colours: {answered(folder, prompt) / busy:.1f} passes by the processor", flush=True
    )
    with running(folder) as address, TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(Path(profile))
        browser.size(1280, 900)
        opened(browser, address, folder.name, "The tower was finished in")  # proofs, once
        first, told = opened(browser, address, folder.name, prompt)
        steps = [line for line in told if "Step " in line or "steps are done" in line]
        print(f"first colours {first:.1f} s = {first / once:.1f} passes by the clock")
        print(f"{len(steps)} reports of progress before", flush=True)
        browser.click("#follow")
        browser.wait("!document.querySelector('#answer-layers label').hidden", 1200)
        for name, times in zip(("by the clock", "of the processor"), slid(browser), strict=True):
            print(
                f"slider {name}: median {statistics.median(times):.0f} ms, worst {max(times):.0f}"
            )
        browser.close()


if __name__ == "__main__":  # the worker process imports this file too
    main(Path(sys.argv[1]))
