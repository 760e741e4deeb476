"""What type checkers and completion know about results: mypy reads this file, nothing runs it."""

from typing import Any, assert_type

from PIL.Image import Image

import alti
from alti.model.image_attribution import ImageAttribution


def of_a_model(model: alti.Model, image: Image) -> None:
    assert_type(model.explain("A film."), alti.Attribution)
    assert_type(model.explain("A film.", method="alti", p=2), alti.Attribution)
    assert_type(model.explain("The capital is", generate=4), alti.Attributions)
    assert_type(model.explain("The capital is", answer=" Paris"), alti.Attributions)
    assert_type(model.explain("A", answer=" Paris", against=" London"), alti.Attribution)
    assert_type(model.explain("A", generate=4, total=True), alti.Attribution)
    assert_type(model.explain(image), ImageAttribution)
    assert_type(model.predict(["A film."]), list[alti.Prediction])


def of_a_model_of_ones_own(network: Any, tokenizer: Any, pipeline: Any, image: Image) -> None:
    assert_type(alti.explain(network, tokenizer, "A film."), alti.Attribution)
    assert_type(alti.explain(pipeline, "A film.", method="alti", p=2), alti.Attribution)
    assert_type(alti.explain(network, tokenizer, "A", positions="all"), alti.Attributions)
    assert_type(alti.explain(network, tokenizer, "The capital is", generate=4), alti.Attributions)
    assert_type(alti.explain(pipeline, "A", answer=" Paris", against=" London"), alti.Attribution)
    assert_type(alti.explain(pipeline, "A", generate=4, total=True), alti.Attribution)
    assert_type(alti.explain(network, None, image), ImageAttribution)
    assert_type(alti.load("name"), alti.Model)
