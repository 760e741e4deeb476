"""How far a computation is: every layer is told, and how many follow, the first time too."""

from itertools import product

import pytest

import alti
from alti.methods.progress import watching
from alti.web.process import PROGRESS, Reports

import tiny
from speed import mostly_slow

SHORT = "The plot is"
LONG = "The plot is funny. " * 300  # more than alti.read.long.LONG tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.writer(tmp_path_factory.mktemp("x") / "tiny-chat")


@pytest.fixture
def model(folder):
    """A model of which nothing is proved yet."""
    return alti.load(str(folder), device="cpu")


def watched(model, text, method):
    """The numbers of steps that were told and of those that were announced."""
    told, announced = [], []
    with watching(lambda *said: told.append(said), announced.append):
        model.explain(text, answer=" film is it", method=method, total=True)
    return told.count((1, None)), sum(announced)


LENGTHS = {"short": SHORT, "long": LONG}
METHODS = ("absence", "alti", "consensus", "dimming", "gradient")


@mostly_slow(
    ("method", "length"),
    list(product(METHODS, LENGTHS)),
    quick=lambda case: case[1] == "short",
)
def test_as_many_steps_are_told_as_were_announced(model, method, length):
    watched(model, LENGTHS[length], method)  # what is proved once is proved
    told, announced = watched(model, LENGTHS[length], method)
    assert told == announced
    assert told >= 3  # layers


def test_proofs_tell_steps_too(model):
    """Those of a fresh model are most of the work, and a server ends what shows no progress."""
    first, announced = watched(model, SHORT, "alti")
    again, _ = watched(model, SHORT, "alti")
    assert first == announced
    assert first > 10 * again


def test_nothing_stays_on_a_model(model):
    def hooks():
        return [list(module._forward_hooks) for module in model.model.modules()]

    watched(model, SHORT, "gradient")  # transformers keeps hooks of its own
    before = hooks()
    watched(model, SHORT, "gradient")
    assert hooks() == before


class Pipe:
    def __init__(self):
        self.sent = []

    def poll(self):
        return False

    def send(self, message):
        self.sent.append(message)


def test_a_server_is_told_a_total_where_it_is_known():
    reports = Reports(Pipe())
    for announced, steps in ((2, 2), (3, 1), (4, 5)):  # the second stage ends early
        reports.expect(announced)
        for _ in range(steps):
            reports.last = 0.0  # each is sent
            reports(1, None)
    totals = [(done, total) for _, done, total in reports.pipe.sent]
    assert totals == [(1, 2), (2, 2), (3, 5), *((n, 7) for n in range(4, 8)), (8, None)]
    reports.begin()
    reports.last = 0.0
    reports(3, 7)  # of a method that runs the model seven times
    assert reports.pipe.sent[-1] == (PROGRESS, 3, 7)
