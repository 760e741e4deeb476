"""CUDA graphs without a GPU: when a shape is recorded, what a recording asks and judges.

That a replay equals a run, `tests/test_gpu.py` shows where there is one.
"""

import gc
import re
import weakref
from contextlib import nullcontext
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import alti
from alti import methods
from alti.methods import METHODS, Inputs, Target
from alti.model import cuda_graphs as graphs
from alti.model.cuda_graphs import KEPT, Recorder
from alti.read import walk as blocks
from alti.read.cuda_capture import Recording, afterwards, into
from alti.web.desk import Desk
from alti.web.settings import Settings

import tiny


class Replayed:
    """In place of a recorded graph: counts, and runs the method."""

    made: ClassVar[list[str]] = []

    def __init__(self, model, method, inputs, target, options, pool) -> None:
        self.asked = method, model
        self.options = options
        self.made.append(method.name)

    def replay(self, inputs: Inputs, target: Target) -> alti.Scores:
        method, model = self.asked
        return methods.call(method, model, inputs, target, **self.options)


@pytest.fixture
def recorder(monkeypatch) -> Recorder:
    return pretended(monkeypatch, Replayed)


def pretended(monkeypatch, graph: type) -> Recorder:
    """A recorder of a model that is said to be on a GPU."""
    monkeypatch.setattr(
        graphs, "network", lambda model: SimpleNamespace(device=torch.device("cuda"))
    )
    monkeypatch.setattr(graphs, "_suits", lambda method, inputs: method.recordable)
    monkeypatch.setattr(graphs, "_Graph", graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(Replayed, "made", [])
    return Recorder(tiny.build("bert", "AutoModelForSequenceClassification"))


def batch(tokens: int) -> tuple[Inputs, Target]:
    ids = torch.arange(3, 3 + tokens)[None]
    tensors = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return Inputs(tensors, torch.zeros_like(ids).bool()), Target(
        position=torch.zeros(1, 1, dtype=torch.long)
    )


def test_a_shape_is_recorded_when_it_comes_again(recorder):
    for tokens in (5, 7, 5, 5, 7):
        inputs, target = batch(tokens)
        found = recorder.run(METHODS["alti"], inputs, target, layers=True)
        assert torch.equal(found.tokens, methods.run("alti", recorder.model, inputs, target).tokens)
    assert Replayed.made == ["alti", "alti"]
    recorder.run(METHODS["alti"], *batch(5), layers=False)
    recorder.run(METHODS["norms"], *batch(5), layers=True)
    assert len(Replayed.made) == 2, "another method or option is another recording"


def test_only_methods_that_read_nothing_are_recorded(recorder):
    for _ in range(3):
        recorder.run(METHODS["gradient"], *batch(5))
    assert Replayed.made == []


def test_replaced_weights_and_new_hooks_are_recorded_anew(recorder):
    def twice() -> int:
        for _ in range(2):
            recorder.run(METHODS["alti"], *batch(5))
        return len(Replayed.made)

    weight = recorder.model.get_input_embeddings().weight
    assert twice() == 1
    with torch.no_grad():
        weight.mul_(2)
    assert twice() == 1, "a graph reads the weights where they lie"
    weight.data = weight.data.clone()
    assert twice() == 2
    handle = recorder.model.get_input_embeddings().register_forward_hook(lambda *_: None)
    assert twice() == 3
    handle.remove()
    recorder.model.get_input_embeddings().register_forward_hook(lambda *_: None)
    assert twice() == 4, "another hook"


def test_the_shape_that_was_not_used_longest_goes(recorder):
    for tokens in range(2, 3 + KEPT):
        for _ in range(2):
            recorder.run(METHODS["attention"], *batch(tokens))
    assert len(recorder.kept) == KEPT
    assert not any(shape == torch.Size([1, 2]) for key in recorder.kept for _, shape in key[1:3])


def test_what_cannot_be_recorded_runs_and_says_so(recorder, monkeypatch):
    def fails(*_):
        raise RuntimeError("operation not permitted when stream is capturing\nmore of it")

    monkeypatch.setattr(graphs, "_Graph", fails)
    recorder.run(METHODS["alti"], *batch(5))
    with pytest.warns(
        UserWarning, match="alti could not be recorded as a graph .operation not permitted"
    ):
        found = recorder.run(METHODS["alti"], *batch(5))
    assert found.tokens.shape == (1, 1, 5)
    recorder.run(METHODS["alti"], *batch(5))  # and is not tried again


def test_a_wrong_block_is_an_error_in_a_recording_too(recorder, monkeypatch):
    def wrong(*_):
        raise alti.DecompositionError("wrong")

    recorder.run(METHODS["alti"], *batch(5))
    monkeypatch.setattr(graphs, "_Graph", wrong)
    with pytest.raises(alti.DecompositionError):
        recorder.run(METHODS["alti"], *batch(5))


def test_a_recording_itself(monkeypatch):
    """The real one, with streams and graphs that do nothing: a replay gives what was captured."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name, value in {
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
        "current_stream": lambda: stream,
        "Stream": lambda: stream,
        "stream": lambda side: nullcontext(),
        "graph": lambda *_, **__: nullcontext(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    readers: list[weakref.ref] = []

    class Reader(blocks.BlockReader):
        def __init__(self, *given) -> None:
            super().__init__(*given)
            readers.append(weakref.ref(self))

    monkeypatch.setattr(blocks, "BlockReader", Reader)
    recorder, (inputs, target) = pretended(monkeypatch, graphs._Graph), batch(6)
    real = methods.run("alti", recorder.model, inputs, target)
    with torch.inference_mode():
        for _ in range(3):
            found = recorder.run(METHODS["alti"], inputs, target)
    assert len(recorder.kept) == 1
    found = recorder.run(
        METHODS["alti"], inputs, target
    )  # what was recorded in inference mode can be written outside of it
    assert torch.equal(found.tokens, real.tokens)
    assert torch.equal(found.layers, real.layers)
    assert torch.equal(found.output.logits, real.output.logits)
    gc.collect()
    assert readers
    assert all(reader() is None for reader in readers), "a reader would hold a block and all maps"


def test_what_is_judged_in_a_captured_run_waits_for_a_replay():
    kept, judged = Recording(), []
    with into(kept):
        afterwards(lambda: judged.append("now"))
        kept.captured = True
        afterwards(lambda: judged.append("later"))
    assert judged == ["now"]
    assert len(kept.judges) == 1
    kept.judges[0]()
    assert judged == ["now", "later"]


class NothingRead(TorchDispatchMode):
    """No number leaves its device in here."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function is not torch.ops.aten._local_scalar_dense.default
        return function(*args, **(kwargs or {}))


def test_while_captured_nothing_is_read():
    """A walk takes the way that texts with and without padding have in common."""
    model, (inputs, target) = tiny.build("olmo2"), batch(6)  # its norms are probed
    plain = methods.run("alti", model, inputs, target).tokens
    kept = Recording(captured=True)
    with into(kept), NothingRead():
        captured = methods.run("alti", model, inputs, target).tokens
    assert torch.equal(captured, plain)
    assert kept.judges
    for judge in kept.judges:
        judge()


NO_GPU = "(--graphs) records CUDA graphs, but the model is on cpu: leave it out"


def test_graphs_need_a_gpu():
    with pytest.raises(alti.UsageError, match=re.escape(NO_GPU)):
        alti.load(graphs=True, device="cpu")
    with pytest.raises(alti.UsageError, match=re.escape(NO_GPU)):
        Desk(Settings(device="cpu", graphs=True))


def test_graphs_on_the_command_line(run):
    code, _, err = run("explain", "A film.", "--graphs", "--device", "cpu")
    assert code == 2
    assert NO_GPU in " ".join(err.split())
