"""What the page shows cannot mislead: names, signs, scales, and what leaves it."""

import io
import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from PIL import Image

import alti
from alti.views import plots
from alti.views.colours import DARK, LIGHT, Scale, contrast, paint
from alti.views.html import class_of
from alti.views.segments import passages, scale_of
from alti.web.help import PLAIN

from pages import BROWSED, CHOOSE, READY, TEXT, file, printed, show, text

pytestmark = BROWSED
QUICK = (  # `make test` runs these; the others are slow
    "test_every_panel_names_its_model_method_class_and_scale",
    "test_methods_are_described_for_newcomers_the_recommended_one_first",
    "test_the_menu_saves_a_chosen_panel_and_maps",
)
NAME = "minilm-l6-sst2"
SVG = "{http://www.w3.org/2000/svg}"


def test_every_panel_names_its_model_method_class_and_scale(page):
    assert text(page, ".result .alti-says") == f"negative99.8 %{NAME}"
    rows = "[...document.querySelectorAll('.alti-row')].map(row => row.textContent)"
    alti_row, absence_row = page.run(rows)
    assert alti_row.startswith("alti")
    assert "shares of 1" in alti_row
    assert absence_row.startswith("absence")
    assert "against" in absence_row
    assert "for negative +0.483relative effect" in absence_row
    for card in ("#mixing-by", "#flow-by"):
        assert "the prediction negative, 99.8 % is read" in text(page, card)
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


def test_what_was_read_stays_where_a_long_name_is_cut(blank):
    show(blank, text=f"It is {'x' * 120} so")
    for named in ("#strip thead", "#flow"):
        assert "xxxxxxxxx… [UNK]" in text(blank, named)


def test_only_what_the_model_did_not_know_is_marked(blank):
    show(blank, text="I loved it \U0001f60d.")
    marked = blank.run("""[...document.querySelectorAll('.result .alti-unknown')]
        .map(mark => mark.parentNode)
        .map(span => [span.textContent, span.title, span.nextSibling.textContent])""")
    title = "The model does not know \U0001f60d and read [UNK]"
    assert marked == 2 * [["\U0001f60d[UNK]", title, "."]]
    blank.wait("!document.querySelector('#whatif').hidden")
    pressed = "[...document.querySelectorAll('.result [data-score]')]"
    blank.run(f"{pressed}.find(span => span.textContent.startsWith('\U0001f60d')).click()")
    blank.wait("document.querySelector('#mixing-title em').textContent === '\U0001f60d'")


def test_the_mark_of_what_the_model_did_not_know_stays_beside_it(blank):
    show(blank, text="It is a film that I really loved so much \U0001f60d.")
    edge = "{}.getClientRects()[0].{}"
    mark = "document.querySelector('.result .alti-unknown')"
    for width in range(320, 440, 4):
        blank.size(width, 900)
        top = blank.run(edge.format(mark, "top"))
        assert top < blank.run(edge.format(f"{mark}.parentNode", "bottom")), width
    blank.size(1280, 900)


def test_a_text_is_whole_in_a_narrower_window(blank):
    show(blank, text=TEXT)
    blank.size(320, 900)
    field = "document.querySelector('#text')"
    blank.wait(f"{field}.scrollHeight <= {field}.clientHeight")
    blank.size(1280, 900)


def numbers(page, selector):
    code = f"[...document.querySelectorAll('{selector} [data-score]')].map(s => s.dataset.score)"
    return page.run(code)


def test_the_row_and_what_is_read_agree(blank):
    """The last word of a causal model has several pieces: the last of them is read, not all."""
    show(blank, model="tiny-llama", text="A clever film is unlucky", methods="alti")
    places = "document.querySelectorAll('#strip .on[data-place]').length"
    assert blank.run(places) == 1
    assert numbers(blank, "#mixed") == numbers(blank, ".result [data-method=alti]")
    by = text(blank, "#mixing-by")
    assert re.search("; the prediction .* is read from it, from its sub-word ", by)
    clever = "[...document.querySelectorAll('.result span')].find(s => s.textContent === 'clever')"
    place = blank.run(f"{clever}.dataset.place")
    blank.click(f".result [data-place='{place}']")  # of several pieces, and not what is read
    assert blank.run(places) > 1
    assert "; the mean of its " in text(blank, "#mixing-by")


def test_line_breaks_belong_to_no_word(blank):
    show(blank, model="tiny-llama", text="A clever film\n\nis unlucky", methods="alti")
    words = blank.run(
        "[...document.querySelectorAll('.result [data-score]')].map(s => s.textContent)"
    )
    assert words == ["A", "clever", "film", "is", "unlucky"]
    assert "line breaks 0." in text(blank, ".result .alti-legend")
    assert "↵" in text(blank, "#strip thead")


def test_the_layers_share_one_scale_and_have_a_legend(page):
    cells = """[...document.querySelectorAll('#strip tbody td')].map(td => [
        Number(td.title.split(': ')[1]), Number(td.className.replace(/alti-(f|zero)/, '') || 0)])"""
    shown = sorted(page.run(cells))
    levels = [level for _, level in shown]
    assert levels == sorted(levels)  # a larger share is nowhere paler
    assert (levels[-1], levels.count(20) < 6) == (20, True)
    legend = text(page, "#strip .alti-legend")
    assert legend.startswith(f"0{shown[-1][0]:.3f}")
    assert "half of the colour at" in legend


@pytest.mark.parametrize("dark", [False, True])
def test_no_share_is_the_palest_in_the_strip(page, dark):
    """As computed, and in an exported panel: from the ramp's first colour on, evenly stronger."""
    page.size(1280, 900, dark=dark)
    cells = """[...document.querySelectorAll('#strip tbody td')].map(td => [
        Number(td.className.replace(/alti-(f|zero)/, '') || 0),
        getComputedStyle(td).backgroundColor])"""
    colours = dict(sorted((level, as_hex(colour)) for level, colour in page.run(cells)))
    theme = DARK if dark else LIGHT
    assert {level: paint(level, theme).background for level in colours} == colours
    assert 0 in colours
    strengths = [contrast(colour, colours[0]) for colour in colours.values()]
    assert strengths == sorted(strengths)
    drawn = ElementTree.fromstring(file(page, "vector", "mixing"))
    fills = {as_hex(each.get("fill", "")) for each in drawn.iter(f"{SVG}rect")}
    assert colours[0] in fills
    page.size(1280, 900)


def as_hex(colour):
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour)[:3])


def test_two_texts_are_compared_for_one_class_on_one_scale(blank):
    show(blank, text="It is a good film.", other="It is not a good film.")
    says = blank.run("[...document.querySelectorAll('.alti-says')].map(p => p.textContent)")
    assert [line.startswith("positive") for line in says] == [True, True]
    assert "Δp −0.9" in says[1]
    assert "the class of the first text; the prediction is negative" in says[1]
    for method in ("alti", "absence"):
        ends = blank.run(
            f"[...document.querySelectorAll('[data-method={method}] .alti-legend')]"
            ".map(p => p.firstChild.textContent + p.childNodes[2].textContent)"
        )
        assert ends[0] == ends[1]
    changed = (
        "[...document.querySelectorAll('[data-method=alti] .changed')].map(s => s.textContent)"
    )
    assert blank.run(changed) == ["not"]
    spoken = "document.querySelector('.changed').getAttribute('aria-label')"
    assert blank.run(spoken).startswith("not, not in the other text, ")
    for box, which in (("flow", "first"), ("flow-other", "second")):
        assert blank.run(f"document.querySelectorAll('#{box} .edge.strong').length") > 5
        assert f"in the {which} text" in text(blank, f"#{box}-by")
    blank.click("#compare")
    blank.wait(f"{READY} && document.querySelectorAll('.result').length === 1")
    assert blank.run("document.querySelector('#flow-other').hidden") is True


def test_what_is_made_of_what_has_one_scale_in_both_texts(blank):
    end = "document.querySelector('{} .alti-legend').childNodes[2].textContent"
    ends = []
    for panel in (0, 1):
        show(blank, text="It is a good film.", other="It is not a good film.", panel=panel)
        ends.append(
            [blank.run(end.format(box)) for box in ("#mixed", "#strip", "[data-method=alti]")]
        )
    assert ends[0] == ends[1]
    assert ends[0][0] == ends[0][2]  # the words of the rows above


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_name_below_the_graph_is_whole(blank, width):
    blank.size(width, 900)
    ends = """[...document.querySelectorAll('#flow svg:last-child .token.on')].map(name => {
        const box = name.getBBox(), around = name.ownerSVGElement.viewBox.baseVal;
        return box.x >= 0 && box.x + box.width <= around.width })"""
    show(blank, text="It is good")
    for place in (0, 1, 4):
        show(blank, text="It is good", unit="tokens", place=place)
        assert blank.run(ends) in ([True, True], [False, True]), place  # above it may lean over
    blank.size(1280, 900)


def test_a_lone_space_has_one_sign(blank):
    show(blank, model="tiny-llama", text="A  clever film")
    for named in ("#strip thead", "#flow"):
        assert "␣" in text(blank, named)
        assert "Ġ" not in text(blank, named)


def test_a_graph_with_too_many_lines_says_which_are_drawn(blank, model):
    long = ("Nobody expected the second half to drag quite so badly, did they? " * 16).strip()
    show(blank, text=long, threshold=0.5)
    said = text(blank, "#flow-by")
    drawn = blank.run("document.querySelectorAll('#flow .edge').length")
    assert f"{drawn:,} of " in said
    assert "the largest, of at least " in said
    least = float(said.partition("of at least ")[2].removesuffix(" %.")) / 100
    layers = model.explain(long).layers
    assert int((layers >= least).sum()) == pytest.approx(drawn, rel=0.02)
    assert least > 0.005
    assert "the largest, of at least" in blank.run(
        "document.querySelector('#flow svg + svg').ariaLabel"
    )
    show(blank, text=TEXT, threshold=5)
    layers = model.explain(TEXT).layers
    assert f"{int((layers > 0.05).sum())} of {layers.numel():,} contributions are drawn" in text(
        blank, "#flow-by"
    )
    assert "those above 5 %" in text(blank, "#flow-by")
    of_plot = plots.graph(model.explain(TEXT), threshold=0.05).texts[-1].get_text()
    assert (
        f"{int((layers > 0.05).sum())} of {layers.numel()} contributions, those above 0.05"
        in of_plot
    )


def test_the_prediction_is_read_after_the_last_layer_alone(blank):
    show(blank, text=TEXT, layer=3)  # from 0
    assert "at layer 4;" in text(blank, "#flow-by")
    assert "is read" not in text(blank, "#flow-by")
    assert "is read" not in text(blank, "#mixing-by")
    blank.run("document.querySelector('#layer').focus()")
    blank.key("ArrowRight")
    blank.key("ArrowRight")
    assert "at layer 6;" in text(blank, "#flow-by")
    assert ", from which the prediction negative, 99." in text(blank, "#flow-by")
    assert "is read from it" in text(blank, "#mixing-by")


def test_the_graph_of_a_long_text_chooses_its_threshold(blank):
    long = "Nobody expected the second half to drag quite so badly, did they? " * 25
    show(blank, text=long.strip())
    threshold = float(text(blank, "#threshold-number").removesuffix(" %"))
    assert 0.1 <= threshold < 8
    crossing = """[...document.querySelectorAll('#flow .edge.strong')]
        .filter(edge => !/^M(\\S+) .* \\1 \\S+$/.test(edge.getAttribute('d'))).length"""
    assert blank.run(crossing) >= 5
    assert "contributions are drawn" in text(blank, "#flow-by")


TEXTS = (
    TEXT,
    "Loved it \U0001f60d\U0001f468\u200d\U0001f469\u200d\U0001f467, un-liev-ably [MASK] 3,000.5!",
    "هذا فيلم رائع جدا",
    "这部电影非常好看。\n\nIt's   naïve\tcafe\u0301",
)
SPANS = """[...document.querySelectorAll('[data-method=METHOD] .alti-text')].map(p =>
    [...p.childNodes].map(n => n.nodeType === 3 ? [n.data, '', ''] : [
        n.firstChild.data, [...n.classList].find(c => /^alti-[fa]\\d+$/.test(c)) ?? '',
        n.dataset.score]))"""


@pytest.fixture(scope="module")
def model():
    return alti.load(device="cpu")


@pytest.mark.parametrize("unit", ["words", "tokens"])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("method", ["absence", "alti"])  # signed, and not
def test_python_and_javascript_show_the_same_pieces_in_the_same_colours(
    blank, model, text, unit, method
):
    show(blank, text=text, methods=method, unit=unit)
    found = model.explain(text, method=method)
    shown = passages(found, words=unit == "words")
    scale = scale_of(found, shown)
    expected = [
        [[piece.text or piece.tokens[0][0], *colour_of(piece, scale)] for piece in passage]
        for passage in shown
    ]
    assert blank.run(SPANS.replace("METHOD", method)) == expected


def colour_of(piece, scale: Scale):
    if piece.score is None:
        return "", ""
    number = scale.number(piece.score).replace("-", "−")
    return "" if piece.special else class_of(scale.level(piece.score)), number


def test_methods_are_described_for_newcomers_the_recommended_one_first(page):
    assert set(alti.METHODS) == set(PLAIN)
    assert not any(re.search("ℓ|proximity|residual|norm of|Lasso", what) for what in PLAIN.values())
    page.click("#methods summary")
    titles = "[...document.querySelectorAll('#methods .title')].map(p => p.textContent)"
    assert page.run(titles)[0] == "Recommended for this model"
    assert page.run("document.querySelector('#methods input').value") == "consensus"
    assert text(page, "#methods .option small") == PLAIN["consensus"]
    page.key("Escape")
    page.run(CHOOSE.format("tiny-llama", "model"))
    page.wait(f"{READY} && document.querySelector('.alti-by').textContent === 'tiny-llama'")
    assert page.run("document.querySelector('#methods input').value") == "absence"


def test_special_tokens_are_explained_one_hover_away(page):
    title = "document.querySelector({}).title"
    rest = page.run(title.format("'[data-method=absence] .alti-rest'"))
    assert rest.startswith("Tokens like [CLS] and [SEP], which the tokenizer adds")
    chosen = page.run(title.format("'#mixing-title em'"))
    assert chosen.startswith("[CLS] is a special token")
    assert chosen.endswith("After the last layer, the model's prediction is read from it.")
    assert page.run(title.format("'#strip .special button'")).startswith("[CLS] is a special token")
    page.click("[name=unit][value=tokens]")
    assert page.run(title.format("'.result .alti-special'")).startswith("[CLS] is a special token")


def test_errors_speak_of_fields(blank):
    show(blank, model="tiny-llama", text="A clever film")
    blank.run(
        "(f => { f.value = 99; f.dispatchEvent(new Event('change')) })"
        "(document.querySelector('#position'))"
    )
    blank.wait("!document.querySelector('#error').hidden")
    assert text(blank, "#error").startswith("Position 99 is outside the text: its ")
    blank.problems.clear()


def test_too_long_says_how_long_and_what_to_do(page):
    page.run("document.querySelector('#text').select()")
    page.type("word " * 600)
    page.wait("!document.querySelector('#error').hidden")
    assert text(page, "#error") == (
        "The text has 602 tokens, and the model takes 512: shorten it by about 15 %, or explain "
        "its parts one by one."
    )
    page.problems.clear()


def test_too_long_names_the_field_that_is(blank):
    show(blank, text="A clever film", pair="and a dull plot")
    blank.run("document.querySelector('#pair').select()")
    blank.type("word " * 1000)
    blank.wait("!document.querySelector('#error').hidden")
    said = text(blank, "#error")
    assert re.fullmatch(
        r"The text has (\d+) tokens and the second text (\d+), together \d+, and the model takes "
        r"\d+: shorten the second text by about \d\d? %, or explain its parts one by one\.",
        said,
    ), said
    blank.problems.clear()


def test_errors_of_options_name_the_field(blank):
    blank.open(f"{blank.server}/#text=A%20clever%20film&methods=absence:value=much")
    blank.wait("!document.querySelector('#error').hidden")
    assert text(blank, "#error") == (
        "The option value of absence takes a number, like 0.5, not 'much'."
    )
    blank.problems.clear()


def test_hidden_hints_are_not_read_aloud(blank):
    described = "document.querySelector('#class').getAttribute('aria-describedby')"
    show(blank, text=TEXT, methods="alti")
    assert blank.run(described) == "class-hint"
    blank.run("location.hash = location.hash.replace('methods=alti', 'methods=alti,absence')")
    blank.wait("document.querySelector('#class-hint').hidden")
    assert blank.run(described) is None
    hidden = """[...document.querySelectorAll('[aria-describedby], [aria-labelledby]')].filter(e =>
        ['aria-describedby', 'aria-labelledby'].flatMap(a => (e.getAttribute(a) ?? '').split(' '))
            .some(id => id && document.getElementById(id).hidden)).length"""
    assert blank.run(hidden) == 0


def test_high_contrast_keeps_borders_and_chosen_segments(page):
    page.send("Emulation.setEmulatedMedia", features=[{"name": "forced-colors", "value": "active"}])
    looks = """selector => { const look = getComputedStyle(document.querySelector(selector));
        return [look.backgroundColor, parseFloat(look.borderTopWidth), look.borderTopColor] }"""
    chosen = page.run(f"({looks})('[name=unit]:checked + span')")
    other = page.run(f"({looks})('[name=unit]:not(:checked) + span')")
    assert chosen[0] != other[0]
    for selector in (".card", ".result", "#link", "textarea", "#strip tbody td"):
        ground, width, colour = page.run(f"({looks})('{selector}')")
        assert width >= 1, selector
        assert colour != ground, selector
    levels = "getComputedStyle(document.querySelector('.result .alti-f20')).backgroundColor"
    assert page.run(levels) not in ("rgba(0, 0, 0, 0)", page.run(f"({looks})('.result')[0]"))
    page.send("Emulation.setEmulatedMedia", features=[])


WAITING = "!document.querySelector('#waiting').hidden"


def test_waiting_shows_progress_and_can_be_cancelled(blank):
    show(blank, text="A clever film", methods="alti")
    blank.run("document.querySelector('#text').select()")
    blank.run("document.querySelector('#methods').open = true")
    blank.click("#methods [value=occlusion]")
    blank.run("document.querySelector('#text').select()")
    blank.type("word " * 400)
    blank.wait(f"{WAITING} && document.querySelector('#waiting-bar').value > 0", 60)
    said = text(blank, "#waiting-why")
    assert re.fullmatch(r"Computing\. Step \d+ of \d+\.", said)
    assert not blank.run("document.querySelector('#waiting-bar').hidden")
    blank.click("#cancel")
    assert text(blank, "#waiting-why") == "Cancelled: this text is not explained."
    assert not blank.run("document.body.hasAttribute('aria-busy')")
    assert blank.run("document.body.classList.contains('stale')")
    blank.run("document.querySelector('#text').select()")
    blank.type("A dull film")  # the worker is free
    dull = "document.querySelector('.result').textContent.includes('dull')"
    blank.wait(f"{READY} && {dull}", 15)
    assert not blank.run(WAITING)


def test_waiting_names_the_place_in_the_queue(page):
    state = {"state": "waiting", "position": 3}
    page.run(
        "window.fetched = window.fetch, window.fetch = (address, options) => "
        "address.startsWith('/api/queue') "
        f"? Promise.resolve(new Response(JSON.stringify({json.dumps(state)}))) "
        ": new Promise((done, fail) => options.signal.addEventListener('abort', () => "
        "fail(new DOMException('', 'AbortError')))), 0"
    )
    page.run("document.querySelector('#text').select()")
    page.type("A dull film")
    page.wait(WAITING)
    assert text(page, "#waiting-why") == "3 requests are before yours."
    page.click("#cancel")
    page.run("window.fetch = window.fetched, 0")
    page.click("#cancel")  # says: Explain it
    page.wait(f"{READY} && document.querySelector('.result').textContent.includes('dull')")
    assert not page.run(WAITING)


@pytest.mark.parametrize("panel", ["results", "mixing", "graph"])
def test_every_panel_leaves_as_image_svg_and_pdf(blank, panel):
    show(blank, text="It is a good film.", unit="tokens", methods="absence")
    root = ElementTree.fromstring(file(blank, "vector", panel))
    width, height = float(root.get("width")), float(root.get("height"))
    said = " ".join("".join(node.itertext()) for node in root.iter(f"{SVG}text"))
    for name in (NAME, "[CLS]", "good"):
        assert name in said, said
    assert "Made of" not in said  # controls stay behind
    image = Image.open(io.BytesIO(file(blank, "picture", panel)))
    assert image.size == (2 * width, 2 * height)
    assert len(image.convert("RGB").getcolors(1 << 24)) > 50
    document = printed(blank, panel)
    assert b"/FontFile" in document  # letters are letters
    assert b"/Subtype /Image" not in document  # and lines are lines
    assert document.count(b"/Type /Page\n") == 1
    size = re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", document)
    assert [float(each) for each in size.groups()] == pytest.approx(
        [0.75 * width, 0.75 * height], abs=1
    )
    assert not blank.run("!!document.querySelector('svg.printed')")  # the page is as before


def test_pictures_keep_names_scales_and_borders_of_sub_words(blank):
    show(blank, text="It is unbelievably good.", unit="tokens", methods="absence")
    root = ElementTree.fromstring(file(blank, "vector", "results"))
    texts = ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]
    for name in ("positive", NAME, "absence", "[SEP]"):
        assert name in texts
    assert any("relative effect" in each for each in texts)
    framed = "document.querySelectorAll('.result .alti-text [data-score]').length"
    outlines = [r for r in root.iter(f"{SVG}rect") if r.get("fill") == "none" and r.get("stroke")]
    assert len(outlines) >= blank.run(framed)
    flow = ElementTree.fromstring(file(blank, "vector", "graph"))
    assert len(list(flow.iter(f"{SVG}path"))) == blank.run(
        "document.querySelectorAll('#flow path').length"
    )
    assert {p.get("stroke") for p in flow.iter(f"{SVG}path")} > {"rgb(31, 98, 180)"}


def drawn(page, box, found):
    """What is found in the picture of a box that is on the page for a moment."""
    return page.run(f"""import('/drawing.js').then(m => {{
        {box}
        document.body.append(box);
        const picture = m.drawing(box);
        box.remove();
        return [...picture.querySelectorAll({found[0]!r})].map(each => {found[1]}) }})""")


def test_a_word_at_the_end_of_a_line_is_as_wide_as_it_is_written(blank):
    show(blank, text="A film.", methods="alti")
    box = r"const box = document.createElement('pre'); box.textContent = 'to read\nthe script';"
    found = "text", "[each.textContent, each.getAttribute('textLength')]"
    (first, wide), (second, wider) = drawn(blank, box, found)
    assert (first, second) == ("to read", "the script")
    assert float(wide) / len(first) == pytest.approx(float(wider) / len(second), rel=0.01)


def test_round_ends_of_a_picture_are_no_ellipses(blank):
    show(blank, text="A film.", methods="alti")
    box = """const box = document.createElement('p');
        box.style = 'width: 40px; height: 20px; background: red; border-radius: 1rem';"""
    rounded = drawn(blank, box, ('[fill="rgb(255, 0, 0)"]', "each.getAttribute('rx')"))
    assert rounded[-1] == "10"  # half of the height, as browsers draw it


def test_a_picture_holds_what_scrolls(blank):
    blank.size(390, 800)
    show(blank, text=TEXT)
    blank.run("document.querySelector('#flow').scrollLeft = 120")
    root = ElementTree.fromstring(file(blank, "vector", "graph"))
    assert float(root.get("width")) > 450
    assert blank.run("document.querySelector('#flow').scrollLeft") == 120
    assert not blank.run("document.querySelector('.drawing')")


def test_a_picture_of_a_long_text_is_as_wide_as_what_scrolls(blank):
    show(blank, text="Nobody expected the second half to drag quite so badly. " * 12)
    strip = "document.querySelector('#strip table').offsetWidth"
    root = ElementTree.fromstring(file(blank, "vector", "mixing"))
    assert float(root.get("width")) < blank.run(strip) + 100  # not as its words in one line
    show(
        blank, text="Nobody expected the second half to drag quite so badly. " * 12, methods="alti"
    )
    assert float(ElementTree.fromstring(file(blank, "vector", "results")).get("width")) < 1280


def test_a_picture_says_nothing_of_clicks_and_has_whole_labels(blank):
    show(blank, model="tiny-bert", text="A clever film", methods="absence")
    for panel in ("results", "mixing", "whatif"):
        root = ElementTree.fromstring(file(blank, "vector", panel))
        texts = list(root.iter(f"{SVG}text"))
        assert not re.search("[Cc]lick", " ".join(node.text for node in texts)), panel
        if panel != "results":
            continue
        ends = [float(n.get("x")) + float(n.get("textLength")) for n in texts if "<img" in n.text]
        bars = min(float(r.get("x")) for r in root.iter(f"{SVG}rect") if r.get("height") == "8")
        assert ends
        assert max(ends) < bars


def test_the_menu_saves_a_chosen_panel_and_maps(page, model):
    page.run(
        "window.saved = [], HTMLAnchorElement.prototype.click = () => {}, "
        "URL.createObjectURL = blob => { window.saved.push(blob); return 'blob:' }, 0"
    )
    page.click("#keep summary")
    page.run(CHOOSE.format("graph", "panel"))
    page.click("[aria-label='Save as SVG']")
    toast = "document.querySelector('#toast').textContent"
    page.wait(f"{toast} === 'alti.svg saved.'")
    kept = page.run("window.saved[0].text()")
    assert "How it flows through the layers" in kept
    page.run("document.querySelector('#keep').open = true")
    page.click("[aria-label='Save as JSON with maps']")
    page.wait(f"{toast} === 'alti-maps.json saved.'")
    stored = json.loads(page.run("window.saved[1].text()"))
    assert stored[0]["layers"] == model.explain(TEXT).to_dict()["layers"]
    assert not page.run("!!document.querySelector(\"[aria-label='Copy as PDF']\")")


BEYOND = """[...document.querySelectorAll({!r})].filter(e => {{
    const box = e.getBoundingClientRect();
    return box.width && (box.left < 0 || box.right > innerWidth) }}).map(e => e.outerHTML)"""


@pytest.mark.parametrize("width", [320, 390])
@pytest.mark.parametrize("menu", ["keep", "methods", "options"])
def test_a_menu_fits_a_phone(blank, menu, width):
    blank.size(width, 800)
    show(blank, text=TEXT, methods="alti,absence")
    blank.click(f"#{menu} summary")
    assert blank.run(f"document.querySelector('#{menu} .panel').offsetWidth") > 200
    assert blank.run(BEYOND.format(f"#{menu} .panel, #{menu} .panel *")) == []
    blank.key("Escape")


def test_long_labels_fit_a_phone(blank):
    blank.size(320, 800)
    show(blank, model="tiny-bert", text=TEXT, methods="absence", target=2, against=1)
    assert blank.run(BEYOND.format(".result, .result *")) == []


def test_the_class_of_the_first_text_is_not_called_the_prediction_of_the_second(blank):
    show(blank, text="It is a good film.", other="It is not a good film.", methods="absence")
    assert "the prediction positive, 99.9 % is read" in text(blank, "#flow-by")
    assert "the class positive, 0.2 % is read" in text(blank, "#flow-other-by")


def in_a_notebook(browser, folder, shown, width):
    """What a notebook shows, opened from a file where there is no network."""
    (folder / "cell.html").write_text(f"<!doctype html><meta charset=utf-8>{shown}")
    browser.size(width, 900)
    browser.send("Network.enable")
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    browser.send("Network.emulateNetworkConditions", **offline)
    browser.open(f"file://{folder}/cell.html")
    browser.send("Network.emulateNetworkConditions", **{**offline, "offline": False})


def test_a_notebook_card_switches_layers_without_network(chromium, tmp_path, model):
    found = model.explain(TEXT)
    in_a_notebook(chromium, tmp_path, found._repr_html_(), 900)
    visible = "[...document.querySelectorAll('.alti-layer')].map(each => each.offsetHeight > 0)"
    assert chromium.run(visible) == [False] * 5 + [True]
    for layer in (1, 3):
        chromium.click(f".alti-layers label:nth-of-type({layer + 1})")
        assert chromium.run(visible) == [number == layer for number in range(6)]
        words = """[...document.querySelectorAll('.alti-layer')].find(each => each.offsetHeight)
            .querySelectorAll('.alti-words [data-score]')"""
        numbers = chromium.run(f"[...{words}].map(span => Number(span.dataset.score))")
        row = replace(found, scores=found.relevance(layer)[found.position]).words()
        assert numbers == pytest.approx(row.scores.tolist(), abs=6e-4)
    assert chromium.run("performance.getEntriesByType('resource').length") == 0
    assert chromium.run("document.scripts.length") == 0


@pytest.mark.parametrize("width", [700, 1100])
def test_a_table_of_a_notebook_is_whole_and_readable(chromium, tmp_path, model, width):
    results = [model.explain(TEXT, method=method) for method in ("alti", "absence", "gradient")]
    in_a_notebook(chromium, tmp_path, alti.cards.table(results), width)
    cut = "(box => box.scrollWidth - box.clientWidth)(document.querySelector('.alti-wide'))"
    assert chromium.run(cut) <= 0
    heights = "[...document.querySelectorAll('tbody td.alti-by')].map(td => {const range ="
    heights += " document.createRange(); range.selectNodeContents(td); return"
    heights += " range.getClientRects().length })"
    assert max(chromium.run(heights)) <= 4  # of up to nine words
    pairs = "[...document.querySelectorAll('.alti-pair')].map(pair => pair.getClientRects().length)"
    assert set(chromium.run(pairs)) == {1}
