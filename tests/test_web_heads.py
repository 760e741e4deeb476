"""The page's answers about heads that neither classify nor write."""

import json

import pytest

import alti
from alti._errors import UsageError
from alti.web.desk import Desk
from alti.web.help import in_fields
from alti.web.questions import KINDS, read
from alti.web.settings import Limits, Settings

import tiny

QUESTION, PASSAGE = "What is it?", "A long film. It is funny."


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    tiny.saved(folder / "answers", head="AutoModelForQuestionAnswering")
    return Desk(Settings((str(folder / "answers"),), device="cpu"))


def asked(kind, **given):
    return read(json.dumps(given).encode(), KINDS[kind][1], Limits())


def test_an_answer_from_a_text_is_where_it_starts_and_ends_together(desk):
    given = {"model": "answers", "text": QUESTION, "text_pair": PASSAGE}
    methods = ["alti", "consensus"]
    shown = json.loads(desk.view(asked("view", methods=methods, **given)))
    for row, method in zip(shown["rows"], methods, strict=True):
        model = desk.models["answers"]
        expected = model.explain(QUESTION, PASSAGE, method=method, total=True)
        assert row["scores"] == expected.scores.tolist()
        assert (shown["label"], shown["probability"]) == (expected.label, expected.probability)
    assert shown["label"] in PASSAGE
    plain = json.loads(desk.explain(asked("explain", method="consensus", **given)))
    assert alti.Attribution.from_dict(plain).label == shown["label"]


def test_what_is_missing_is_said_in_the_words_of_the_page(desk):
    with pytest.raises(UsageError) as raised:
        desk.view(asked("view", model="answers", text=QUESTION, methods=["alti"]))
    message = "give the question and, as the second text, the text"
    assert message in in_fields(str(raised.value))
