"""What a first install has not: methods are left out where nobody asked for them by name."""

import sys
import tomllib
from pathlib import Path

import pytest

import alti
from alti.experiments import plan, study

ROOT = Path(__file__).parents[1]
METHODS = {"integrated_gradients": ("captum", "gradients"), "contextcite": ("sklearn", "context")}


@pytest.mark.parametrize(("name", "library", "extra"), [(k, *v) for k, v in METHODS.items()])
def test_a_method_without_its_library(monkeypatch, name, library, extra):
    model = alti.load()
    assert model.suits(alti.METHODS[name])
    for loaded in [one for one in sys.modules if one.partition(".")[0] == library]:
        monkeypatch.setitem(sys.modules, loaded, None)
    monkeypatch.setitem(sys.modules, library, None)
    assert not model.suits(alti.METHODS[name])
    every = [*plan.default_methods(model), *study.default_methods()]
    assert every
    assert not [spec for spec in every if name in spec]
    with pytest.raises(alti.LoadError, match=rf"{name} needs .*: pip install 'alti\[{extra}\]'"):
        model.explain("A clever film.", method=name)


def test_extras_bring_what_methods_need():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert extras["gradients"][0].startswith("captum")
    assert extras["context"][0].startswith("scikit-learn")
    for extra in ("context", "gradients", "images", "plots", "web"):
        assert {*extras[extra]} <= {*extras["dev"]}, extra
    named = {method.library for method in alti.METHODS.values() if method.library}
    assert named == {library for library, _ in METHODS.values()}
