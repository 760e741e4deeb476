"""Results among other tools: pickles, arrays, equality, JSON, tables, notebooks."""

import pickle

import pytest

import alti


@pytest.mark.parametrize("name", ["Attribution", "Attributions", "Prediction"])
def test_pickles_know_results_by_the_module_of_old(name):
    assert pickle.loads(f"calti.model.attribution\n{name}\n.".encode()) is getattr(alti, name)
    with pytest.raises(AttributeError, match="get attribute 'Attributionz'"):
        pickle.loads(b"calti.model.attribution\nAttributionz\n.")
