"""What the page shows cannot mislead: names, signs, scales, and what leaves it."""

import pytest

from pages import BROWSED, CHOOSE, READY, TEXT, show, text

pytestmark = BROWSED
NAME = "minilm-l6-sst2"


def test_every_panel_names_its_model_method_class_and_scale(page):
    assert text(page, ".result .alti-says") == f"negative99.8 %{NAME}"
    rows = "[...document.querySelectorAll('.alti-row')].map(row => row.textContent)"
    alti_row, absence_row = page.run(rows)
    assert alti_row.startswith("alti")
    assert "shares of 1" in alti_row
    assert absence_row.startswith("absence")
    assert "against" in absence_row
    assert "for negative +0.483logits" in absence_row
    for card in ("#mixing-by", "#graph-by"):
        assert f"As alti sees it in {NAME}" in text(page, card)
    assert "shares of 1" in text(page, "#mixed .alti-legend")
    assert "1 %10 %50 %of [CLS]" in text(page, "#flow svg:last-child")


def test_a_rival_is_named_too(blank):
    show(blank, model="tiny-bert", text=TEXT, methods="absence", target=2, against=1)
    label = "neither rather than </option><b>bold</b>"
    assert text(blank, ".result .alti-says strong") == label
    assert f"for {label}" in text(blank, ".result .alti-legend")


def test_a_link_to_a_model_that_is_not_served_says_so(blank):
    blank.open(f"{blank.server}/#model=gpt-7&text=A+clever+film")
    blank.wait("!document.querySelector('#held').hidden")
    assert "asks for the model gpt-7, which this server does not have" in text(blank, "#held-why")
    assert blank.run("document.querySelectorAll('.result').length") == 0
    assert blank.run("document.querySelector('#model').selectedOptions[0].text").startswith("gpt-7")
    blank.run("document.querySelector('#text').select()")
    blank.type("A dull film")  # is no wish for another model
    blank.wait("location.hash.includes('dull')")
    assert "model=gpt-7" in blank.run("location.hash")
    assert blank.run("document.querySelectorAll('.result').length") == 0
    assert text(blank, "#compute") == f"Explain with {NAME} instead"
    blank.click("#compute")
    blank.wait(READY)
    assert NAME in text(blank, ".alti-says")
    assert "gpt-7" not in blank.run("location.hash")


def test_choosing_a_model_answers_a_link_to_a_missing_one(blank):
    blank.open(f"{blank.server}/#model=gpt-7&text=A+clever+film")
    blank.wait("!document.querySelector('#held').hidden")
    blank.run(CHOOSE.format("tiny-bert", "model"))
    blank.wait(READY)
    assert text(blank, ".alti-says").endswith("tiny-bert")
    assert blank.run("document.querySelector('#held').hidden") is True


@pytest.mark.parametrize("unit", ["words", "tokens"])
def test_what_the_model_did_not_know_is_marked(blank, unit):
    show(blank, text="Loved it \U0001f60d so", unit=unit)
    face = "[...document.querySelectorAll('.result [data-score]')]"
    face += ".find(span => span.textContent.includes('\U0001f60d'))"
    assert blank.run(f"{face}.textContent") == "\U0001f60d[UNK]"
    assert blank.run(f"{face}.title") == "The model does not know \U0001f60d and read [UNK]"
    assert blank.run(f"{face}.getAttribute('aria-label')").startswith("\U0001f60d read as [UNK], ")
    assert (
        blank.run("document.querySelectorAll('.alti-unknown').length") == 3
    )  # two rows, one below
    for named in ("#strip thead", "#flow"):
        assert "\U0001f60d [UNK]" in text(blank, named)
