"""Results among other tools: pickles, arrays, equality, JSON, tables, notebooks."""

import json
import pickle
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import alti
from test_attribution import attribution


def several(**changes) -> alti.Attributions:
    """Two predictions about one text."""
    one = attribution()
    given = {
        "source": one.source,
        "predictions": (one.prediction, alti.Prediction(label="neutral", probability=0.25)),
        "scores": torch.stack([one.scores, one.scores.flip(0)]),
        "method": "alti",
        "layers": torch.eye(6)[None],
        "model": "tiny",
        "options": {"p": 2, "spans": ((0, 2), (3, 5))},
    }
    return alti.Attributions(**{**given, **changes})


BOTH = pytest.mark.parametrize("result", [attribution(options={"p": 1}), several()], ids=type)


@pytest.mark.parametrize("name", ["Attribution", "Attributions", "Prediction"])
def test_pickles_know_results_by_the_module_of_old(name):
    assert pickle.loads(f"calti.model.attribution\n{name}\n.".encode()) is getattr(alti, name)
    with pytest.raises(AttributeError, match="get attribute 'Attributionz'"):
        pickle.loads(b"calti.model.attribution\nAttributionz\n.")


@BOTH
def test_arrays_are_the_scores(result):
    expected = result.scores.numpy()
    for array in (result.values, np.asarray(result), np.array(result)):
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, expected)
    assert np.asarray(result, dtype=np.float64).dtype == np.float64
    assert np.mean(result) == pytest.approx(float(result.scores.mean()))
    result.values[...] = 7  # of its own: the result stays as it is
    assert float(result.scores.max()) < 1
    with pytest.raises(ValueError, match="is a copy"):
        np.array(result, copy=False)


def test_scores_that_numpy_has_no_type_for():
    found = attribution(scores=torch.arange(6).bfloat16())
    np.testing.assert_array_equal(found.values, np.arange(6, dtype=np.float32))


@BOTH
def test_what_was_saved_and_loaded_is_equal(result, tmp_path):
    result.save(tmp_path / "one")
    loaded = type(result).load(tmp_path / "one")
    assert loaded == result
    assert loaded.source == result.source
    assert hash(loaded) == hash(result)
    assert len({loaded, result}) == 1
    assert type(result).from_dict(json.loads(result.to_json(checksum=True))) == result
    assert pickle.loads(pickle.dumps(result)) == result
    assert result != "a text"
    assert result.source != "a text"


def changed(result):
    """The same result but for one thing."""
    scores = result.scores.clone()
    scores[..., 0] += 1e-7
    source = replace(result.source, special=~result.source.special)
    yield replace(result, scores=scores)
    yield replace(result, scores=result.scores.double())
    yield replace(result, scores=result.scores[..., :0])
    yield replace(result, layers=torch.zeros(1, 6, 6))
    yield replace(result, source=source)
    yield replace(result, source=replace(result.source, cut=("rest",)))
    yield replace(result, method="norms")
    yield replace(result, options={})
    yield replace(result, model="another")


@BOTH
def test_results_that_differ_in_one_thing_are_not_equal(result):
    others = list(changed(result))
    assert result not in others
    assert all(hash(one) == hash(result) for one in others)  # tensors are no part of it


def test_predictions_are_part_of_equality():
    found = attribution()
    other = replace(found, prediction=replace(found.prediction, probability=0.5))
    assert found != other
    assert several() != several(predictions=several().predictions[::-1])
    assert several() == several(extra=({}, {}))  # () says the same
    assert several()[0] != several()


def test_json_is_for_other_programs():
    found = attribution(text="So naïvely!")
    assert json.loads(found.to_json()) == json.loads(json.dumps(found.to_dict()))
    assert "naïvely" in found.to_json()
    assert "\n" in found.to_json(indent=1)
    with pytest.raises(alti.AltiError, match="cannot be stored"):
        attribution(scores=torch.full((6,), torch.nan)).to_json()


def test_a_table_of_tokens():
    pytest.importorskip("pandas")
    found = attribution()
    table = found.to_dataframe()
    assert list(table) == ["token", "score", "start", "end", "segment", "special"]
    assert list(table["token"]) == list(found.tokens)
    np.testing.assert_array_equal(table["score"], found.values)
    assert list(table["end"]) == [0, 2, 5, 10, 11, 0]
    assert table.attrs == {"label": "negative", "probability": 0.75, "method": "alti", "model": ""}
    assert list(found.words().to_dataframe()["token"]) == ["So", "unlucky", "!"]
    by_sentence = found.grouped("sentence").to_dataframe()
    assert by_sentence["group"].tolist() == ["sentence 1"]
    assert by_sentence["token"].tolist() == ["So unlucky!"]


def test_a_table_of_several_predictions():
    pytest.importorskip("pandas")
    result = several()
    table = result.to_dataframe()
    assert len(table) == 12
    assert table.index.tolist() == list(range(12))
    np.testing.assert_array_equal(
        table.pivot(columns="prediction")["score"][1][6:], result.values[1]
    )
    assert table["label"].tolist() == ["negative"] * 6 + ["neutral"] * 6


def test_a_table_without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(alti.LoadError, match=r"to_dataframe needs pandas, .*: pip install pandas"):
        attribution().to_dataframe()


def test_a_result_in_a_list_is_one_line():
    line = repr([attribution(), several()])
    assert "<Attribution 'So unlucky!': negative (p = 0.750) · alti: unlucky 0.3, ! 0.15" in line
    assert "<Attributions 'So unlucky!': 2 predictions · alti" in line
    assert "\n" not in line
    assert "\x1b" not in repr(attribution(label="\x1b[31mred"))


def test_ipython_shows_the_text_alone_and_a_line_in_a_list():
    for found in (attribution(), several()):
        shown = []
        asked = next(each for each in type(found).__mro__ if "__repr__" in vars(each))
        own = vars(asked)["_repr_pretty_"]  # IPython looks no further
        own(found, SimpleNamespace(text=shown.append, stack=[1]), False)
        own(found, SimpleNamespace(text=shown.append, stack=[1, 2]), False)
        assert shown == [str(found), repr(found)]


def test_notebooks_show_lists_as_tables():
    formats = {}
    formatter = SimpleNamespace(for_type=formats.__setitem__)
    shell = SimpleNamespace(display_formatter=SimpleNamespace(formatters={"text/html": formatter}))
    alti.load_ipython_extension(shell)
    assert formats[list]([attribution(), several()]).count("<tr>") == 4
    assert formats[tuple]((attribution(),)).count("<tr>") == 2
    assert formats[list]([1, attribution()]) is None
    assert formats[list]([]) is None


def test_shap_gets_scores_and_pieces_of_the_text():
    shap = pytest.importorskip("shap")
    found = attribution(extra={"remainder": -0.5})
    explanation = found.to_shap()
    assert isinstance(explanation, shap.Explanation)
    np.testing.assert_array_equal(explanation.values, found.values)
    assert explanation.base_values == -0.5
    assert list(explanation.data) == ["[CLS] ", "So ", "un", "lucky", "!", "[SEP] "]
    assert list(found.words().to_shap().data) == ["So ", "unlucky", "!"]
    assert list(found.grouped("sentence").to_shap().data) == ["sentence 1 "]
    assert attribution().to_shap().base_values == 0
    page = shap.plots.text(explanation, display=False)
    assert all(piece.strip() in page for piece in explanation.data)


def test_shap_gets_a_column_for_each_prediction():
    pytest.importorskip("shap")
    result = several(extra=({"remainder": 1.0}, {"remainder": 2.0}))
    explanation = result.to_shap()
    np.testing.assert_array_equal(explanation.values, result.values.T)
    np.testing.assert_array_equal(explanation.base_values, [1.0, 2.0])
    np.testing.assert_array_equal(explanation[:, 1].values, result.values[1])


def test_captum_gets_a_record():
    visualization = pytest.importorskip("captum.attr").visualization
    found = attribution(text="So <b>cky!!", tokens=("[CLS]", "so", "<", "b>cky", "!", "[SEP]"))
    record = found.to_captum()
    assert isinstance(record, visualization.VisualizationDataRecord)
    assert (record.pred_class, record.attr_class, record.pred_prob) == (
        "negative",
        "negative",
        0.75,
    )
    assert record.attr_score == pytest.approx(1.0)
    torch.testing.assert_close(record.word_attributions, found.scores / 0.4)
    assert record.raw_input_ids == ["[CLS]", "so", "&lt;", "b&gt;cky", "!", "[SEP]"]
    assert [one.pred_class for one in several().to_captum()] == ["negative", "neutral"]
    assert np.isnan(attribution(probability=None).to_captum().pred_prob)
    assert attribution(scores=torch.zeros(6)).to_captum().word_attributions.tolist() == [0.0] * 6
    cell = visualization.format_word_importances(record.raw_input_ids, record.word_attributions)
    assert cell.count("<mark") == 6


@pytest.mark.parametrize("name", ["shap", "captum"])
def test_exports_without_their_library(name, monkeypatch):
    for module in [name, *(each for each in sys.modules if each.startswith(f"{name}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(alti.LoadError, match=f"to_{name} needs {name}, .*: pip install {name}"):
        getattr(attribution(), f"to_{name}")()
