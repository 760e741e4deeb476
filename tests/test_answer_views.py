"""Answers and groups in every view: what is shown, that it fits, and that nothing misleads."""

import copy
import math
import re
from functools import cache

import pytest
import torch

import alti
from alti.views import html, latex, plots, terminal
from alti.views.colours import DARK, Scale
from alti.views.said import as_shown, by_words, chance_of, notes, shortened, strongest, whole_answer
from alti.views.screen import ALL, NONE, Style, cells, clipped
from test_views import STRIP, Page

import tiny
from speed import mostly_slow

PROMPT = "The keys to the cabinet are on the table. It costs 3.14 dollars!\nThe plot is clumsy."
ANSWER = " A clever film."
DOCUMENTS = ["The café owner is naïve.", "It's not a bad film; the acting is better."]
CHAT = (
    "{% for m in messages %}[CLS]{{ m['role'] }}\n{{ m['content'] }}[SEP]\n{% endfor %}[CLS]bot\n"
)
MESSAGES = [
    {"role": "system", "content": "A long and clumsy plot."},
    {"role": "user", "content": "The acting is better than the ending."},
]


def built(template: str | None = None) -> alti.Model:
    tokenizer = copy.deepcopy(tiny.tokenizer("bpe"))
    tokenizer.chat_template = template
    net = tiny.speaking("llama", "AutoModelForCausalLM", "bpe", max_position_embeddings=900)
    return alti.Model(net, tokenizer, name="tiny")


@cache
def found(kind: str = "text") -> alti.Attributions:
    if kind == "chat":
        return built(CHAT).explain(MESSAGES, answer="A clever film.")
    if kind == "documents":
        return built().explain("The keys?", documents=DOCUMENTS, answer=ANSWER)
    method = "input_x_gradient" if kind == "gradient" else "absence" if kind == "signed" else "alti"
    return built().explain(PROMPT, answer=ANSWER, method=method)


def by_hand(words: int = 3, tokens: int = 2, probability: float = 0.5) -> alti.Attributions:
    """A prompt behind [BOS], an answer; every answer token gives the prompt's words 1, 2, 3 …"""
    prompt = [f"word{i}" for i in range(words)]
    answer = [f" tok{i}" for i in range(tokens)]
    ends = [len(" ".join(prompt[: i + 1])) for i in range(words)]
    spans = [(end - len(word), end) for end, word in zip(ends, prompt, strict=True)]
    ends = [len("".join(answer[: i + 1])) for i in range(tokens)]
    spans += [(end - len(word), end) for end, word in zip(ends, answer, strict=True)]
    source = alti.Source(
        texts=(" ".join(prompt), "".join(answer)),
        tokens=("[BOS]", *prompt, *answer),
        offsets=((0, 0), *spans),
        special=torch.tensor([True] + [False] * (words + tokens)),
        segments=(-1, *[0] * words, *[1] * tokens),
        answer=1 + words,
    )
    scores = torch.zeros(tokens, 1 + words + tokens)
    scores[:, 0] = 99.0
    scores[:, 1 : 1 + words] = torch.arange(1, words + 1)
    for k in range(1, tokens):
        scores[k, words + k] = 0.25  # the token before
    predictions = tuple(
        alti.Prediction(label=label, index=7, probability=probability, position=words + k)
        for k, label in enumerate(answer)
    )
    return alti.Attributions(
        source=source, predictions=predictions, scores=scores, method="hand", model="tiny"
    )


def shown(result, colours: int = NONE, width: int = 80, **how) -> str:
    return STRIP.sub("", terminal.render(result, style=Style(colours, width=width), **how))


KINDS = ("text", "gradient", "signed", "documents", "chat")
UNITS = {
    "text": ("word", "sentence", "line", ((0, 8), (13, 20))),
    "documents": ("document", "sentence"),
    "chat": ("message", "sentence", "word"),
}
RESULTS = [(kind, by) for kind in KINDS for by in (None, *UNITS.get(kind, ()))]


def result_of(kind: str, by) -> alti.Attributions:
    if by is None:
        return found(kind)
    return found(kind).grouped(by if isinstance(by, str) else list(by))


@mostly_slow(("kind", "by"), RESULTS, quick=lambda result: result[1] is None)
@mostly_slow("words", [True, False], quick=[True])
def test_every_view_of_every_result(kind, by, words, tmp_path):
    several = result_of(kind, by)
    for result in (several, several.total(), several[0], several[len(several) - 1]):
        for colours in (NONE, ALL):
            assert shown(result, colours, 30, words=words)
            for width in (60, 120):
                _, *lines = shown(result, colours, width, words=words).splitlines()
                assert all(cells(line) <= width for line in lines)
        page = Page(html.page(result, words=words))
        assert not page.having("style")
        assert result._repr_html_()
        assert latex.document(result, words=words).count(r"\begin{longtable}") == 1
    several.plot(words=words).savefig(tmp_path / "several.png")
    several.plot("tokens", words=words).savefig(tmp_path / "total.png")
    assert terminal.compare([several.total()] * 2, words=words, style=Style(ALL))


def test_an_answer_in_a_terminal_is_its_total_and_its_tokens():
    first, *rest = shown(by_hand()).splitlines()
    assert first == "“tok0 tok1” (p = 0.250) · hand · tiny"
    assert rest == [
        "  word0  2.000  ████████",
        "  word1  4.000  ████████████████",
        "  word2  6.000  ████████████████████████",
        "  special tokens 198.000",
        "  the answer so far 0.250",
        "",
        "  token  p      rests most on",
        "   tok0  0.500  word2 3.000  word1 2.000  word0 1.000",
        "   tok1  0.500  word2 3.000  word1 2.000  word0 1.000",
    ]


def test_only_the_prompt_is_coloured():
    text = terminal.render(by_hand(), style=Style(ALL))
    coloured = re.findall(r"48;2;[\d;]*m([^\x1b]*)", text)
    assert [each for each in coloured if each.strip()] == ["word0", "word1", "word2"]
    assert STRIP.sub("", text).count("tok1") == 2  # the headline, and the line of the token


def test_words_of_the_answer_so_far_are_marked():
    several = by_hand(words=1)
    several.scores[1, 2] = 5.0
    assert shown(several).splitlines()[-3:] == [
        "  token  p      rests most on (…: the answer so far)",
        "   tok0  0.500  word0 1.000",
        "   tok1  0.500  …tok0 5.000  word0 1.000",
    ]
    assert "…tok0</span>5.000" in html.fragment(several)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_long_answer_stays_in_its_columns(width):
    head, *lines = shown(by_hand(600, 60), width=width).splitlines()
    assert cells(head) <= width
    assert head.startswith("“tok0 tok1")
    assert "…” (log p = -41.6) · hand · tiny" in head
    rows = lines[-60:]
    assert len({row.index("0.500") for row in rows}) == 1
    assert all(cells(line) <= width for line in lines)
    assert len(lines) < 60 + 30  # of 600 bars, those of the largest scores


def test_probabilities_stay_readable():
    assert chance_of(whole_answer(by_hand(probability=0.5))) == "p = 0.250"
    assert chance_of(whole_answer(by_hand(tokens=20, probability=0.1))) == "log p = -46.1"
    tiny_one = by_hand(tokens=400, probability=1e-3)
    assert chance_of(whole_answer(tiny_one)) == f"log p = {400 * math.log(1e-3):.1f}"
    assert tiny_one.total().probability == 0
    assert chance_of(as_shown(tiny_one.total())) == f"log p = {400 * math.log(1e-3):.1f}"
    assert r"($\log p = -46.1$)" in latex.table(by_hand(tokens=20, probability=0.1))


def test_one_token_of_an_answer_is_shown_on_what_it_read():
    second = by_hand()[1]
    text = shown(second, ALL)
    assert text.startswith("' tok1' (p = 0.500)")
    assert "tok0" in text
    assert "tok1" not in text.split("\n", 1)[1].replace("for ' tok1'", "")
    assert "tok0" not in shown(by_hand()[0], ALL).split("\n", 1)[1]
    assert Page(html.fragment(second)).texts == ["word0 word1 word2", " tok0"] * 2


def test_special_tokens_are_not_ranked():
    several = by_hand()
    names = [each.name for each in strongest(several[1], 9)]
    assert names == ["word2", "word1", "word0", " tok0"]
    assert "[BOS]" not in shown(several, words=False).split("rests most on")[1]
    assert "[BOS]" not in html.fragment(several, words=False).split("rests most on")[1]
    columns = plots.predictions(by_hand(words=100), words=False)
    names = [label.get_text() for label in columns.get_xticklabels()]
    assert "[BOS]" not in names
    assert len(names) == plots.attributions.COLUMNS


def test_what_is_on_no_word_is_said():
    text = shown(found("chat"), ALL)
    assert "special tokens" in text
    assert "template and line breaks" in text
    assert "the answer so far" in text
    total = as_shown(found("chat").total())
    scale = alti.views.colours.Scale(1.0, False)
    said = sum(float(note.rpartition(" ")[2]) for note in notes(total, scale))
    on_words = float(total.words().scores.sum())
    assert said + on_words == pytest.approx(float(found("chat").total().scores.sum()), abs=2e-3)


@pytest.mark.parametrize("colours", [NONE, ALL])
def test_a_comparison_says_what_is_in_no_word_as_one_result_does(colours):
    for result in (by_hand(), found("chat"), found("chat").grouped("message")):
        total = as_shown(result.total())
        scale = Scale.of(by_words(total).scores.tolist())
        names = [note.rpartition(" ") for note in notes(total, scale)]
        assert names
        style = Style(colours, DARK, 100)
        shown = STRIP.sub("", terminal.compare([result.total()], style=style))
        for name, _, number in names:
            assert re.search(rf"^ *{name} +{re.escape(number)}$", shown, re.MULTILINE), shown
            assert f"{name} {number}" in STRIP.sub("", terminal.render(result.total(), style=style))


def test_groups_are_listed_with_their_names():
    lines = shown(found("documents").grouped("document").total()).splitlines()
    assert "by document" in lines[0]
    assert re.match(r"  document 1  0\.\d+  █+.* The café owner is naïve\.", lines[1])
    assert lines[2].startswith("  document 2  ")
    assert re.match(r"  outside of the groups 0\.\d+", lines[3])
    tokens = shown(found("documents").grouped("document")).split("rests most on")[1]
    assert re.search(r"document 2 +0\.\d+", tokens)
    assert "  1  0." in shown(found().grouped("sentence").total())


def test_many_groups_are_sorted():
    spans = [match.span() for match in re.finditer(r"\S+", by_hand(words=15).source.texts[0])]
    few = by_hand(words=12).grouped(spans[:12]).total()
    many = by_hand(words=15).grouped(spans).total()
    assert [line.split()[0] for line in shown(few).splitlines()[1:13]] == [
        str(i) for i in range(1, 13)
    ]
    assert [line.split()[0] for line in shown(many).splitlines()[1:16]] == [
        str(i) for i in range(15, 0, -1)
    ]
    assert html.fragment(many).index("word14") < html.fragment(many).index("word13")


def test_no_groups_at_all():
    several = by_hand().grouped([])
    assert "outside of the groups" in shown(several.total())
    assert "rests most on" in shown(several)
    assert Page(html.page(several))
    assert latex.table(several)


def test_a_page_holds_the_prompt_twice():
    page = html.page(by_hand(600, 60))
    assert page.count("word300</span>") == 2  # by words and by tokens
    assert len(page) < 300_000
    assert Page(page).texts == [by_hand(600, 60).source.texts[0]] * 2
    assert page.count('<tr><th scope="row"') == 2 * 60


def test_bars_of_a_page_have_widths_of_the_stylesheet():
    fragment = html.fragment(found("documents").grouped("document"))
    used = set(re.findall(r"alti-w\d+", fragment))
    assert used
    assert all(f".alti .{name} {{ width: " in html.STYLE for name in used)
    assert "alti-switch" not in fragment
    assert fragment.count("<section") == 1


def test_bars_are_as_long_as_their_scores():
    found = by_hand(words=50)
    spans = [match.span() for match in re.finditer(r"\S+", found.source.texts[0])]
    fragment = html.fragment(found.grouped(spans).total())
    widths = re.findall(r"alti-bar alti-w(\d+) ", fragment)
    assert sorted(map(int, widths)) == list(range(2, 101, 2))  # 1 to 50 of 50, in percent


def test_a_page_cannot_be_left_through_an_answer():
    several = by_hand()
    nasty = '"><script>\n'
    predictions = tuple(
        alti.Prediction(label=nasty, index=1, probability=0.5, position=one.position)
        for one in several.predictions
    )
    page = html.page(
        alti.Attributions(
            source=several.source, predictions=predictions, scores=several.scores, method=nasty
        )
    )
    assert not [tag for tag, _ in Page(page).elements if tag == "script"]


def test_answers_and_texts_share_a_page():
    mixed = [found(), found("documents"), found()[0].words(), found("chat").total()]
    page = html.page(mixed)
    assert page.count("<section") == 4
    assert "4 texts explained" in page
    assert latex.document(mixed).count("medskip") == 3


def test_one_answer_against_another():
    result = built().explain(PROMPT, answer=" film", against=" plot", method="absence")
    text = shown(result, ALL, 120)
    assert text.startswith("' film' rather than ' plot' (log p = -")
    assert r"\textrm{ rather than }" in latex.table(result)
    assert Page(html.page(result)).texts == [PROMPT] * 2


def test_a_table_of_an_answer_names_it():
    text = latex.table(by_hand())
    assert r"\textbf{“tok0 tok1”} ($p = 0.250$)" in text
    assert "the answer so far 0.250" in text
    assert r"\altiword{4}{white}{word2}" in text
    groups = latex.table(found("documents").grouped("document"))
    assert r"{\color{gray}0.000} " in groups  # shares of nearly the same size look so
    assert re.search(
        r"document 2 & \\raggedright\\leavevmode \\altiword\{\d\}\{\w+\}\{0\.\d+\} It", groups
    )
    assert "outside of the groups" in groups


def test_rows_of_a_plot_are_tokens_and_columns_words():
    ax = plots.predictions(by_hand(20, 5))
    assert [label.get_text() for label in ax.get_yticklabels()] == [f"tok{i}" for i in range(5)]
    assert [label.get_text() for label in ax.get_xticklabels()][:2] == ["word0", "word1"]
    assert list(ax.lines[0].get_xdata()) == [19.5, 19.5]  # where the answer begins
    assert ax.get_title(loc="left") == "“tok0 tok1 tok2 tok3 tok4” (p = 0.031)"
    assert ax.images[0].get_array().max() == 1


def test_of_many_columns_the_largest_are_drawn():
    ax = plots.predictions(by_hand(100, 5))
    names = [label.get_text() for label in ax.get_xticklabels()]
    assert names == [f"word{i}" for i in range(40, 100)]


def test_bars_of_groups_have_their_names():
    ax = plots.tokens(found("documents").grouped("document").total())
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names[0] == "document 1: The café owner is naïve."
    assert names[1].endswith("…")
    bars = found().plot("tokens").axes[0]
    assert len(bars.patches) == len(as_shown(found().total()).words())


def test_a_graph_is_of_one_token():
    several = built().explain(PROMPT, answer=ANSWER, layers=True)
    several[0].plot("graph")
    with pytest.raises(alti.UsageError, match="one token of the answer"):
        several.plot("graph")


def test_texts_are_cut_to_their_width():
    assert shortened("one\n two  three", 9) == "one two…"
    assert shortened("one two", 7) == "one two"
    assert clipped("日本語です", 6) == "日本…"
    assert clipped("abc", 3) == "abc"
    assert cells(clipped("e\u0301" * 9, 4)) == 4
