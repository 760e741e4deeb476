"""A process that is forked after a model was used explains the same and never hangs."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

import alti
from alti.read import process

import tiny
from speed import slow

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

START = """
import os, signal, sys, threading, warnings
import torch, alti
torch.set_num_threads(2)
model = alti.load(device="cpu")
text = "A clever blend of fact and fiction, and unbelievably funny. " * 8

def child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)  # nobody would end a child that hangs
        code = 1
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                work()
            print(*(warning.message for warning in said), sep="\\n")
            sys.stdout.flush()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
"""
AFTER_USE = """
expected = {method: model.explain(text, method=method).scores for method in ("alti", "absence")}
(block, *_) = alti.trace(model.model, dict(model.tokenizer("a film", return_tensors="pt")))

def work():
    for method, scores in expected.items():
        torch.testing.assert_close(model.explain(text, method=method).scores, scores)
    try:
        alti.contributions(block, kernel="numba")
    except alti.AltiError as error:
        print("explicit:", error)

child(work)
"""
WHILE_IN_USE = """
done = threading.Event()

def busy():
    while not done.is_set():
        model.explain(text)

expected = model.explain(text).scores
thread = threading.Thread(target=busy)
thread.start()
for _ in range(3):
    child(lambda: torch.testing.assert_close(model.explain(text).scores, expected))
done.set()
thread.join()
"""


def run(script: str) -> list[str]:
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
    environment.pop("OMP_NUM_THREADS", None)
    done = subprocess.run(
        [sys.executable, "-c", START + script],
        capture_output=True, text=True, check=False, timeout=120, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@slow
def test_a_child_explains_with_one_thread_after_the_parent_has():
    explicit, *said = run(AFTER_USE)
    assert explicit.startswith("explicit: this process was forked from one that has run it")
    assert [sentence.partition(":")[0] for sentence in said] == [
        "this process was forked from one that used torch",
        "the numba kernel does not work here (this process was forked from one that has run it; "
        "spawn processes instead)",
    ]


@slow
def test_a_child_that_is_forked_in_the_middle_of_an_explanation():
    run(WHILE_IN_USE)


def test_a_gpu_in_a_forked_process_is_refused(monkeypatch):
    monkeypatch.setattr(process, "_pid", -1)
    monkeypatch.setattr("torch.cuda._is_in_bad_fork", lambda: True)
    on_gpu = SimpleNamespace(parameters=lambda: [SimpleNamespace(is_cuda=True)])
    with pytest.raises(alti.AltiError, match="a GPU cannot be used in a process that was forked"):
        process.settle(on_gpu)
    process.settle(torch.nn.Linear(1, 1))  # has one thread already


def test_a_process_that_was_not_forked_keeps_its_threads():
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        alti.explain(tiny.speaking("bert", "AutoModel"), tiny.tokenizer(), "a film")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
