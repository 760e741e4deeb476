"""What if, over HTTP and on the page: the library's own numbers."""

import json
import re
from urllib.parse import quote

import httpx
import pytest

import alti

import tiny
from pages import BROWSED, READY, TEXT, show, text

QUICK = (  # `make test` runs these; the others are slow
    "test_all_numbers_are_the_library_s",
    "test_an_answer_s_numbers_are_the_library_s",
    "test_what_cannot_be_measured_is_one_sentence",
    "test_click_a_word_and_leave_it_out",
)
browsed = BROWSED
CHAT = [{"role": "user", "content": "The plot is funny. It is a film."}]
TRIES = "document.querySelectorAll('#tries li').length"


@pytest.fixture(scope="module")
def client(server):
    with httpx.Client(base_url=server, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def model():
    return alti.load(device="cpu")


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    return alti.load(str(tiny.writer(tmp_path_factory.mktemp("x") / "tiny-chat")), device="cpu")


def asked(client, **question):
    answer = client.post("/api/whatif", json=question)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("by", ["word", "sentence"])
def test_all_numbers_are_the_library_s(client, model, by):
    found = asked(client, text=TEXT, by=by, method="absence", target="positive")
    wanted = alti.what_if(model, TEXT, groups=by, method="absence", target="positive")
    assert found["names"] == list(wanted.measured.tokens)
    assert found["before"] == wanted.before
    assert found["after"] == wanted.after.tolist()
    assert found["fall"] == wanted.measured.scores.tolist()
    assert found["predicted"] == wanted.predicted.scores.tolist()
    assert found["correlation"] == wanted.rank_correlation


def test_an_answer_s_numbers_are_the_library_s(client, writer):
    prompt = {"chat": CHAT, "answer": "It is better", "part": [1, 3]}
    found = asked(client, model="tiny-chat", by="sentence", method="alti", **prompt)
    wanted = alti.what_if(
        writer, CHAT, answer="It is better", part=(1, 3), groups="sentence", method="alti"
    )
    assert found["after"] == pytest.approx(wanted.after.tolist(), rel=1e-6)
    assert found["predicted"] == pytest.approx(wanted.predicted.scores.tolist())


def test_one_word_and_another_one(client, model):
    at = TEXT.index("tedious")
    one = asked(client, text=TEXT, at=[0, at + 2])
    assert one["names"] == ["tedious"]
    assert one["after"] == alti.what_if(model, TEXT, only=(0, at)).after.tolist()
    other = asked(client, text=TEXT, at=[0, at], instead="gripping")
    wanted = alti.instead(model, TEXT, at=(0, at), new="gripping")
    assert (other["before"], other["after"]) == (wanted.before, [wanted.after])
    assert (other["names"], other["instead"]) == (["tedious"], "gripping")


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"text": TEXT, "at": [0, 9999]}, "is in no word"),
        ({"text": TEXT, "at": [0]}, "send at = [text, character]"),
        ({"text": TEXT, "instead": "x"}, "send at = [text, character]"),
        ({"text": TEXT, "by": "token"}, "choose one of"),
        ({"text": TEXT, "by": "verse"}, "choose one of"),
        ({"text": TEXT, "at": [0, 3], "instead": "y " * 20_000}, "characters"),
        ({"text": "a " * 600}, "and the model takes 512"),
        ({"text": ""}, "."),
        ({"chat": CHAT}, "go with an answer"),
        ({"text": TEXT, "answer": "a"}, "writes no text"),
        ({"text": TEXT, "method": "magic"}, "There is no method"),
        ({"model": "tiny-chat", "text": "a b " * 400, "answer": "It"}, "512 can be measured"),
        ({"model": "tiny-t5", "text": "It"}, "."),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_measured_is_one_sentence(client, question, said):
    answer = client.post("/api/whatif", json=question)
    assert answer.status_code in (400, 413), answer.text
    assert said in answer.json()["error"]


def pick(page, word, row="absence"):
    spans = f"[...document.querySelectorAll('.result [data-method={row}] span')]"
    page.run(f"{spans}.find(span => span.textContent === {json.dumps(word)}).click()")


@browsed
def test_click_a_word_and_leave_it_out(page, model):
    assert text(page, "#whatif-title") == "What if a word were not there?"
    assert page.run("document.querySelector('#without').disabled") is True
    pick(page, "mess")
    assert text(page, "#whatif-title") == "What if “mess” were not there?"
    page.click("#without")
    page.wait(f"{TRIES} === 1")
    found = alti.what_if(model, TEXT, only=(0, TEXT.index("mess")))
    line = text(page, "#tries li")
    assert f"{100 * float(found.before):.3f} % → {100 * float(found.after[0]):.3f} %" in line
    fall, predicted = 100 * float(found.before - found.after[0]), float(found.predicted.scores[0])
    assert min(fall, predicted) > 0  # one direction, in the same words
    assert f"a fall of {fall:.3f} points" in line
    assert f"absence predicted a fall of {predicted:.3f} in relative effect" in line
    page.run("document.querySelector('#instead').focus()")
    page.type("triumph")
    page.key("Enter")
    page.wait(f"{TRIES} === 2")
    change = alti.instead(model, TEXT, at=(0, TEXT.index("mess")), new="triumph")
    assert f"→ {100 * change.after:.1f} %" in text(page, "#tries li")
    assert "“triumph” instead of “mess”" in text(page, "#tries li")


@browsed
def test_every_word_predicted_and_measured(page, model):
    page.click("#measure")
    page.wait("!!document.querySelector('.scatter')")
    found = alti.what_if(model, TEXT)
    rho = f"{found.rank_correlation:.2f}".replace("-", "−")
    assert text(page, "#measured h3").endswith(f"ρ = {rho}")
    dots = page.run("document.querySelectorAll('.scatter .dot').length")
    assert dots == len(found.predicted)
    label = page.run("document.querySelector('.scatter').getAttribute('aria-label')")
    assert label.endswith(f"ρ = {rho}")
    cells = "[...document.querySelectorAll('.numbers tbody tr')].map(r => r.cells[2].textContent)"
    falls = sorted((100 * (found.before - found.after)).tolist(), reverse=True)
    shown = [float(cell.replace("−", "-")) for cell in page.run(cells)]
    assert shown == pytest.approx(falls, abs=0.051)
    assert "leave_one_out" in text(page, "#whatif .hint")
    page.run("document.querySelector('#text').select()")
    page.type("A clever film")
    page.wait(f"{READY} && !document.querySelector('.scatter')")  # it was of another text


CROWDED = """import('/scatter.js').then(({ scatter }) => {
    const dots = Array.from({ length: 24 }, (_, i) => ({
        name: `word number ${i}`, x: (i * 7) % 24, y: (i * 5) % 11 }));
    const svg = scatter(dots, { x: 'x', y: 'y', title: 'crowded' });
    svg.id = 'crowded';
    document.querySelector('#measured').append(svg);
    const boxes = kind => [...svg.querySelectorAll(kind)].map(n => n.getBoundingClientRect());
    const meet = (a, b) =>
        a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom;
    const [names, dotted] = [boxes('.dot-name'), boxes('.dot')];
    svg.remove();
    return [names.length, names.filter((a, i) => [...dotted, ...names.slice(0, i)]
        .some(b => meet(a, b))).length] })"""


@browsed
def test_names_cover_no_dots(page):
    """Names stand beside their dots, or above or below, where nothing else is."""
    count, covering = page.run(CROWDED)
    assert count >= 3
    assert covering == 0


CORNERS = """import('/scatter.js').then(({ scatter }) => {
    const dots = [["yellow", 4.6, 5.2], ["fruits", 3.8, 5.19], ["three", -.66, 0], ["Name", 0, 5.1]]
        .map(([name, x, y]) => ({ name, x, y }));
    const svg = scatter(dots, { x: 'x', y: 'y', title: 'corners' });
    return [...svg.querySelectorAll('.dot-name')].map(name => name.textContent) })"""


@browsed
def test_a_dot_in_a_corner_has_its_name(page):
    assert set(page.run(CORNERS)) >= {"yellow", "fruits", "three"}


@browsed
def test_rows_of_words_have_scales_and_marks(blank):
    show(blank, text="The plot is superb \U0001f60d, but a mess.", methods="absence")
    blank.click("#measure")
    blank.wait("!!document.querySelector('.scatter')")
    rows = "[...document.querySelectorAll('#measured .alti-row')]"
    legends = blank.run(f"{rows}.map(row => row.querySelector('.alti-legend').textContent)")
    assert re.fullmatch(r"−0\.\d+ againstfor negative \+0\.\d+relative effect", legends[0])
    assert re.search(r"\d\.\d+points$", legends[1])
    marked = "row => [...row.querySelectorAll('.alti-unknown')].map(s => s.parentNode.textContent)"
    assert blank.run(f"{rows}.map({marked})") == [["\U0001f60d[UNK]"]] * 2
    words = "[...document.querySelectorAll('#measured .alti-text')].map(p => p.textContent.trim())"
    assert blank.run(words) == ["The plot is superb \U0001f60d[UNK], but a mess."] * 2
    names = blank.run("[...document.querySelectorAll('.numbers tbody th')].map(t => t.textContent)")
    assert "\U0001f60d [UNK]" in names
    pick(blank, "\U0001f60d[UNK]")
    blank.click("#without")
    blank.wait(f"{TRIES} === 1")
    assert "without “\U0001f60d [UNK]”" in text(blank, "#tries li")


@browsed
def test_sentences_are_left_out_too(blank, model):
    two = "The plot is a mess. The acting is superb."
    show(blank, text=two)
    pick(blank, "acting")
    blank.click("[name=left-out][value=sentence]")
    blank.click("#without")
    blank.wait(f"{TRIES} === 1")
    found = alti.what_if(model, two, groups="sentence", only=(0, two.index("acting")))
    assert "without “The acting is superb.”" in text(blank, "#tries li")
    assert f"→ {100 * float(found.after[0]):.1f} %" in text(blank, "#tries li")
    assert text(blank, "#whatif-title") == "What if the sentence with “acting” were not there?"
    blank.click("#measure")
    blank.wait("!!document.querySelector('.scatter')")
    few = "2 sentences, too few for a rank correlation"
    assert text(blank, "#measured h3") == f"Predicted and measured: {few}"
    blank.click("[name=left-out][value=word]")
    assert blank.run(TRIES) == 0  # sentences are not words
    assert text(blank, ".scatter") is None
    blank.click("[name=left-out][value=sentence]")
    assert blank.run(TRIES) == 1


@browsed
def test_a_method_that_follows_the_mixing_predicts_no_fall(blank):
    show(blank, text=TEXT, methods="alti")
    pick(blank, "mess", row="alti")
    blank.click("#without")
    blank.wait(f"{TRIES} === 1")
    assert re.search(r"alti gives it \+0\.\d{3}, in shares of 1$", text(blank, "#tries li"))


@browsed
@pytest.mark.parametrize(("by", "name"), [("document", "document"), ("sentence", "sentence")])
def test_the_title_names_what_is_left_out(blank, by, name):
    asked = {"form": "documents", "documents": ["A.", "B."], "question": "Is it?", "answer": "It"}
    told = quote(json.dumps({**asked, "by": by}))
    blank.open(f"{blank.server}/#model=tiny-chat&ask=answer&prompt={told}")
    blank.wait("!!document.querySelector('#prompted') && !document.querySelector('#whatif').hidden")
    assert text(blank, "#whatif-title") == f"What if a {name} were not there?"


@browsed
def test_a_word_of_a_prompt_by_keyboard(blank, writer):
    told = quote(json.dumps({"form": "chat", "messages": CHAT, "answer": "It is better"}))
    blank.open(f"{blank.server}/#model=tiny-chat&ask=answer&prompt={told}")
    blank.wait("!!document.querySelector('#prompted') && !document.querySelector('#whatif').hidden")
    blank.run("document.querySelector('#prompted [tabindex=\"0\"]').focus()")
    blank.key("ArrowRight")
    blank.key("Enter")
    assert text(blank, "#whatif-title") == "What if “plot” were not there?"
    assert blank.run("document.activeElement.getAttribute('aria-pressed')") == "true"
    blank.run("document.querySelector('#without').focus()")
    blank.key("Enter")
    blank.wait(f"{TRIES} === 1")
    at = writer.explain(CHAT, answer="It").source.texts[0].index("plot")
    found = alti.what_if(writer, CHAT, answer="It is better", only=(0, at))
    fall = float(found.measured.scores[0])
    shown = text(blank, "#tries .change")  # so small a p is shown by its log
    size = float(found.predicted.scores[0])
    assert shown == f"{'a rise' if fall < 0 else 'a fall'} of {abs(fall):.2f} of log p"
    said = f"absence predicted {'a rise' if size < 0 else 'a fall'} of {abs(size):.3f} in logits"
    assert said in text(blank, "#tries li")


@browsed
def test_a_window_may_change_while_an_answer_is_asked_about(blank):
    """The card stays, and what is said stays the answer's; there was a next word before."""
    show(blank, model="tiny-chat", text="The plot is", methods="absence")
    blank.run("document.querySelector('[name=ask][value=answer]').click()")
    told = quote(json.dumps({"form": "chat", "messages": CHAT, "answer": "It is better"}))
    blank.run(f"location.hash = '#model=tiny-chat&ask=answer&prompt={told}'")
    blank.wait("!!document.querySelector('#prompted') && !document.querySelector('#whatif').hidden")
    said = text(blank, "#status")
    assert said.startswith("It is better")
    blank.size(700, 800)
    blank.run("new Promise(done => setTimeout(done, 500))")
    assert blank.run("document.querySelector('#whatif').hidden") is False
    assert text(blank, "#status") == said


@browsed
def test_measuring_can_be_cancelled(blank):
    show(blank, text="word " * 150, methods="absence")
    blank.click("#measure")
    blank.wait("!document.querySelector('#waiting').hidden")
    blank.click("#cancel")
    assert text(blank, "#whatif-said") == "Cancelled."
    assert blank.run("document.querySelector('#waiting').hidden") is True
    show(blank, text="A clever film")  # the server is free


@browsed
def test_an_error_is_said_in_the_card(page):
    pick(page, "mess")
    page.run("document.querySelector('#instead').value = 'y '.repeat(30000)")
    page.click("#try")
    page.wait("!document.querySelector('#whatif-said').hidden")
    assert "characters" in text(page, "#whatif-said")
    page.problems.clear()


@browsed
@pytest.mark.parametrize("dark", [False, True])
def test_a_narrow_window(blank, dark):
    blank.size(320, 800, dark=dark)
    show(blank, text=TEXT)
    blank.click("#measure")
    blank.wait("!!document.querySelector('.scatter')")
    assert blank.run("document.documentElement.scrollWidth") <= 320


@browsed
def test_where_nothing_has_a_probability_there_is_no_card(blank):
    show(blank, model="tiny-bert", text=TEXT)
    assert blank.run("!document.querySelector('#whatif').hidden")
    nodes = blank.send("Accessibility.getFullAXTree")["nodes"]
    blank.send("Accessibility.disable")
    named = {(n["role"]["value"], n.get("name", {}).get("value")) for n in nodes if "role" in n}
    for role, name in (
        ("button", "Measure every word"),
        ("textbox", "or instead"),
        ("radio", "sentences"),
        ("region", "What if a word were not there?"),
    ):
        assert (role, name) in named, (role, name)


@browsed
def test_hostile_words_are_only_text(blank):
    hostile = "<img src=x onerror='document.body.dataset.owned=1'> mess"
    show(blank, text=hostile)
    pick(blank, "mess")
    blank.run("document.querySelector('#instead').value = '<b onload=1>bold</b>'")
    blank.click("#try")
    blank.wait(f"{TRIES} === 1")
    blank.click("#measure")
    blank.wait("!!document.querySelector('.scatter')")
    assert blank.run("document.querySelectorAll('#whatif img, #tries b b').length") == 0
    assert blank.run("document.body.dataset.owned") is None
    assert "<b onload=1>bold</b>" in text(blank, "#tries li")
