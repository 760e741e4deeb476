"""Views of a result: colours, terminal text, web pages, LaTeX."""

import base64
import hashlib
import io
import math
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from matplotlib.text import Text

import alti
from alti._characters import visible
from alti.views import html, latex, terminal
from alti.views.colours import (
    BETWEEN,
    DARK,
    LIGHT,
    STEPS,
    Scale,
    _oklab,
    contrast,
    paint,
    paint_256,
    rgb,
)
from alti.views.lines import legend
from alti.views.screen import clipped_name
from alti.views.segments import passages
from alti.views.terminal import ALL, DIM, NONE, RESET, SOME, Style

import tiny

TEXTS = {
    "plain": "A clever film, unbelievably dull.",
    "markup": "<script>alert(1)</script> & \"quotes\" 'single' </style><b onclick=x>",
    "spaces": "  two  spaces\tand\n\na new line  ",
    "chinese": "我喜欢这部电影。不太好",
    "emoji": "so 😀👍🏽 👩‍👧 ❤️ funny",
    "arabic": "هذا الفيلم رائع جدا",
    "combining": "cafe\u0301 nai\u0308ve \u200d\n\u0301x",
    "latex": r"\ { } $ & # ^ _ ~ % \input{x} $x^2$ --- `a' ''b'' [c] *",
    "control": "red\x1b[31m bell\x07 nul\x00 csi\x9b31m del\x7f turn\u202eaway",
    "many": " ".join(f"word{i}" for i in range(400)),
    "one long word": "x" * 300,
}
STRIP = re.compile(r"\x1b\[[0-9;]*m")


def made(text: str = TEXTS["plain"], scores=None, **changes) -> alti.Attribution:
    """Words between [CLS] and [SEP]; scores that fall from 1 to -1 where none are given."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    inner = (
        torch.linspace(1, -1, len(spans))
        if scores is None
        else torch.tensor(scores, dtype=torch.float32)
    )
    given = {
        "text": text,
        "tokens": ("[CLS]", *(text[slice(*span)].lower() for span in spans), "[SEP]"),
        "offsets": ((0, 0), *spans, (0, 0)),
        "scores": torch.cat([torch.tensor([9.0]), inner, torch.tensor([0.5])]),
        "special": torch.tensor([True, *[False] * len(spans), True]),
        "segments": (-1, *[0] * len(spans), -1),
        "method": "hand",
        "label": "good",
        "probability": 0.75,
        "model": "tiny",
    }
    return tiny.attribution(**{**given, **changes})


def pair() -> alti.Attribution:
    return tiny.attribution(
        text="A clever film",
        text_pair="a dull plot",
        tokens=("[CLS]", "a", "clever", "film", "[SEP]", "a", "du", "##ll", "plot", "[SEP]"),
        offsets=((0, 0), (0, 1), (2, 8), (9, 13), (0, 0), (0, 1), (2, 4), (4, 6), (7, 11), (0, 0)),
        scores=torch.tensor([0, 0.1, 0.4, 0, 0, 0, -0.5, -0.3, 0, 0]),
        special=torch.tensor([True, False, False, False, True, False, False, False, False, True]),
        segments=(-1, 0, 0, 0, -1, 1, 1, 1, 1, -1),
        method="absence",
        label="positive",
    )


class Page(HTMLParser):
    """What a browser would see: nesting, texts, attributes."""

    VOID = ("meta", "input", "br")

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open, self.elements, self.texts = [], [], []
        self.feed(source)
        self.close()
        assert not self.open, "an element is not closed"

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), "an attribute twice"
        self.elements.append((tag, dict(attributes)))
        if tag == "p" and "alti-text" in (dict(attributes).get("class") or ""):
            assert "p" not in self.open
            self.texts.append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if (
            self.texts
            and "p" in self.open
            and "style" not in self.open
            and "alti-legend" not in self.last_paragraph()
        ):
            self.texts[-1] += data

    def last_paragraph(self) -> str:
        return next(
            given.get("class") or "" for tag, given in reversed(self.elements) if tag == "p"
        )

    def having(self, name: str) -> list[dict]:
        return [given for _, given in self.elements if name in given]


@pytest.mark.parametrize("theme", [LIGHT, DARK, BETWEEN])
def test_text_can_be_read_on_every_colour(theme):
    for level in range(-STEPS, STEPS + 1):
        colour = paint(level, theme)
        assert contrast(colour.ink, colour.background) >= 4.5
        if level and (few := paint_256(level, theme)):
            assert contrast(few.colours.ink, few.colours.background) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_weak_scores_are_weak_in_256_colours(theme):
    """No level is much stronger than in true colour, and stronger scores are not weaker."""
    ground = paint(0, theme).background
    for sign in (1, -1):
        before = 1.0
        for level in range(1, STEPS + 1):
            few = paint_256(sign * level, theme)
            strength = contrast(few.colours.background, ground) if few else 1.0
            assert strength < 1.35 * contrast(paint(sign * level, theme).background, ground)
            assert strength > before / 1.2
            before = max(before, strength)


@pytest.mark.parametrize("ground", ["#000000", "#ffffff", "#808080", "#002b36", "#fdf6e3"])
@pytest.mark.parametrize("colours", [256, "all"])
@pytest.mark.parametrize("sign", [1, -1])
def test_weak_scores_are_weak_on_an_unknown_ground(ground, colours, sign):
    levels = range(BETWEEN.least, STEPS + 1)
    palette = [_painted(sign * level, colours) for level in levels]
    strengths = [math.dist(_oklab(colour), _oklab(ground)) for colour in palette]
    assert strengths == pytest.approx(sorted(strengths), rel=0.01)
    assert strengths[-1] > strengths[0] + 0.01
    chromas = [math.hypot(*_oklab(colour)[1:]) for colour in palette]
    assert chromas == pytest.approx(sorted(chromas), abs=2e-3)
    lightest = [contrast(colour, "#000000") for colour in palette]
    assert max(lightest) < 1.08 * min(lightest)  # light and dark say nothing about strength


def _painted(level, colours):
    if colours == 256:
        return paint_256(level, BETWEEN).colours.background
    return paint(level, BETWEEN).background


@pytest.mark.parametrize("theme", [LIGHT, DARK, BETWEEN])
@pytest.mark.parametrize("colours", [SOME, ALL])
def test_the_legend_has_colours_that_occur(theme, colours):
    style = Style(colours, theme)
    codes = re.compile("\x1b\\[[^m]*48[^m]*m")
    every = {codes.match(style.painted("a", level))[0] for level in (-20, -12, -4, 4, 12, 20)}
    shown = codes.findall(legend("0", "1", True, style))
    assert every <= set(shown)
    assert shown[-1] == codes.match(style.painted("a", STEPS))[0]


def test_contrast_is_that_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert contrast("#123456", "#123456") == 1


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_colours_grow_with_the_score(theme):
    for sign in (1, -1):
        grounds = [
            contrast(paint(sign * level, theme).background, paint(0, theme).background)
            for level in range(21)
        ]
        assert grounds == sorted(grounds)
        assert grounds[-1] > 3
    blue, orange = (paint(level, theme).background for level in (STEPS, -STEPS))
    assert blue[5:] > orange[5:]  # the blue channel
    assert orange[1:3] > blue[1:3]  # the red one


def test_shares_and_levels():
    scale = Scale.of([0.5, -0.25, 0.0, float("nan"), float("inf")])
    assert (scale.largest, scale.signed) == (0.5, True)
    scores = (0.5, -0.25, 0.0, 0.01, float("nan"), float("inf"), -float("inf"))
    assert [scale.level(score) for score in scores] == [20, -10, 0, 0, 0, 20, -20]
    assert Scale.of([0.0, 0.0]).level(0.0) == 0
    assert [Scale(8.0, True).level(score) for score in (1.0, -1.0, 0.2, -0.2)] == [3, -3, 1, -1]
    assert Scale.of([]).number(0.0) == "0.000"
    assert Scale.of([0.5, 0.25]).number(0.25) == "0.250"
    assert Scale.of([0.0123, -0.01]).number(0.0051) == "+0.0051"
    assert Scale.of([1e-12]).number(1e-12) == "1.00e-12"


@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("name", TEXTS)
def test_pieces_join_to_the_text(name, words):
    (passage,) = passages(made(TEXTS[name]), words=words)
    assert "".join(piece.text for piece in passage) == TEXTS[name]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "sentencepiece"])
@pytest.mark.parametrize(
    "text", [*tiny.CORPUS[:2], TEXTS["emoji"], TEXTS["chinese"], TEXTS["spaces"]]
)
def test_pieces_of_every_tokenizer(kind, text):
    head = "AutoModelForCausalLM" if kind == "bpe" else "AutoModel"
    model = tiny.speaking(
        "llama" if kind == "bpe" else "bert", head, kind, max_position_embeddings=200
    )
    found = alti.explain(model, tiny.tokenizer(kind), text)
    for words in (True, False):
        (passage,) = passages(found, words=words)
        assert "".join(piece.text for piece in passage) == text
        shown = sum(piece.score or 0 for piece in passage)
        outside = found.words().extra["ungrouped"] if words else 0  # special tokens, line breaks
        assert shown + outside == pytest.approx(float(found.scores.sum()))


def test_pieces_of_a_pair():
    first, second = passages(pair())
    assert [piece.score for piece in second if piece.score is not None] == pytest.approx(
        [0, -0.8, 0]
    )
    assert [piece.text for piece in first] == ["A", " ", "clever", " ", "film"]
    first, second = passages(pair(), words=False)
    assert [piece.tokens[0][0] for piece in first if piece.special] == ["[CLS]", "[SEP]"]
    assert [piece.tokens[0][0] for piece in second if piece.special] == ["[SEP]"]
    assert [piece.text for piece in second if piece.score is not None] == [
        "a",
        "du",
        "ll",
        "plot",
        "",
    ]


def test_what_was_cut_and_masked():
    found = made("good [MASK] film and the rest", scores=[0.5, 0.1, 0.2, 0.1, 0.3, 0.2])
    special = torch.tensor([True, False, True, False, False, False, False, True])
    found = replace(found, source=replace(found.source, special=special))
    (passage,) = passages(found, words=False)
    assert [piece.text for piece in passage if piece.special] == ["", "[MASK]", ""]
    short = made("good film and the rest", scores=[0.5, 0.1, 0.2, 0.1, 0.3])
    offsets = ((0, 0), (0, 4), (5, 9), (0, 0), (0, 0), (0, 0), (0, 0))
    source = replace(short.source, offsets=offsets, cut=("and the rest",))
    short = replace(short, source=source)
    assert passages(short)[0][-1].text == " and the rest"
    assert passages(short)[0][-1].score is None
    assert "alti-cut" in html.fragment(short)
    assert r"{\color{gray}and the rest}" in latex.table(short)


def render(found, **changes):
    return terminal.render(found, style=Style(ALL, DARK, 60), **changes)


@pytest.mark.parametrize(
    ("environ", "tty", "expected"),
    [
        ({"TERM": "xterm-256color"}, True, SOME),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, True, ALL),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, False, NONE),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, True, NONE),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, NONE),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, SOME),
        ({"FORCE_COLOR": "1"}, False, SOME),
        ({"FORCE_COLOR": "3"}, False, ALL),
        ({"FORCE_COLOR": "0", "TERM": "xterm"}, True, NONE),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, NONE),
        ({"TERM": "vt100"}, True, NONE),
        ({"WT_SESSION": "1"}, True, ALL),
        ({}, True, NONE),
    ],
)
def test_how_many_colours(environ, tty, expected):
    stream = io.StringIO()
    stream.isatty = lambda: tty
    assert terminal.colours_of(stream, environ) == expected


def test_no_colours_no_escapes(monkeypatch):
    found = made()
    assert "\x1b" not in str(found)
    assert "█" in str(found)
    assert "\x1b" not in terminal.compare([found, found])
    monkeypatch.setenv("FORCE_COLOR", "3")
    assert "\x1b[38;2;" in str(found)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in str(found)


@pytest.mark.parametrize(
    ("value", "theme"), [("15;0", DARK), ("0;15", LIGHT), ("0;default;15", LIGHT), ("x", BETWEEN)]
)
def test_light_and_dark(monkeypatch, value, theme):
    monkeypatch.setenv("COLORFGBG", value)
    assert Style.here().theme == theme


def test_known_scores_have_known_colours():
    out = render(made("good so bad", scores=[0.4, 0.0, -0.2]))
    for word, level in (("good", 20), ("bad", -10)):
        colour = paint(level, DARK)
        ink, ground = (
            ";".join(str(int(part[i : i + 2], 16)) for i in (1, 3, 5))
            for part in (colour.ink, colour.background)
        )
        assert f"\x1b[38;2;{ink};48;2;{ground}m{word}\x1b[0m" in out
    assert " so " in out
    few = terminal.render(made("good so bad", scores=[0.4, 0.0, -0.2]), style=Style(SOME, DARK))
    number = paint_256(20, DARK)
    assert f"\x1b[38;5;{number.ink};48;5;{number.background}mgood\x1b[0m" in few
    assert "38;2" not in few


def test_the_head_and_the_legend():
    first, *_, last, rest = STRIP.sub(
        "", render(made("good so bad", scores=[0.4, 0.0, -0.2]))
    ).splitlines()
    assert first == "good (p = 0.750) · hand · tiny"
    assert re.fullmatch(r"  -0\.400 against +for good \+0\.400", last)
    assert rest == "  special tokens +9.500"
    assert STRIP.sub("", render(made("a b", scores=[0.4, 0.1]))).splitlines()[-2].split() == [
        "0",
        "0.400",
    ]
    assert STRIP.sub("", render(made("a b", label=None))).splitlines()[-2].split() == [
        "-1.000",
        "against",
        "for",
        "+1.000",
    ]
    assert (
        STRIP.sub("", render(made("a b", scores=[0, 0])))
        .splitlines()[-2]
        .endswith("every score is 0")
    )


@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("name", [name for name in TEXTS if name != "control"])
def test_terminal_text_is_the_users(name, words):
    lines = STRIP.sub("", render(made(TEXTS[name]), words=words)).splitlines()
    assert all(terminal.cells(line) <= 60 for line in lines)
    shown = "".join("".join(lines[1 : -2 if words else -1]).split())
    assert shown.replace("[CLS]", "").replace("[SEP]", "") == "".join(TEXTS[name].split())


def test_spacing_and_line_ends_are_kept():
    lines = STRIP.sub("", render(made("one  two\n\n  three"))).splitlines()
    assert lines[2:5] == ["  one  two", "", "    three"]


@pytest.mark.parametrize("bars", [True, False])
def test_escapes_in_the_text_do_nothing(bars):
    found = made(TEXTS["control"], label="ba\x1b[2Jd", model="m\x1b]0;x\x07", method="\x9b1m")
    for out in (
        render(found, bars=bars),
        terminal.compare([found], bars=bars, style=Style(ALL, DARK, 60)),
    ):
        plain = STRIP.sub("", out)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", plain)
        assert "␛[31m" in plain
        assert "ba␛[2Jd" in plain
    assert visible("a\tb\n") == "a\tb\n"


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("abc", 3),
        ("电影", 4),
        ("e\u0301", 1),
        ("😀", 2),
        ("👍🏽", 2),
        ("👩\u200d👧", 2),
        ("❤️", 2),
        ("", 0),
        ("\u200b", 0),
        ("ｆ", 2),
    ],
)
def test_columns(text, width):
    assert terminal.cells(text) == width


def test_wide_text_is_wrapped_between_characters():
    lines = STRIP.sub(
        "", terminal.render(made("电影" * 40), style=Style(ALL, DARK, 31))
    ).splitlines()[2:-3]
    assert [terminal.cells(line) for line in lines] == [30, 30, 30, 30, 30, 22]


def test_both_texts_of_a_pair():
    lines = STRIP.sub("", render(pair())).splitlines()
    assert lines[1:5] == ["", "  A clever film", "", "  a dull plot"]
    assert "[SEP]" in render(pair(), words=False)


def test_bars_in_colour_are_the_same_bars():
    assert STRIP.sub("", render(pair(), bars=True)) == terminal.render(pair(), style=Style(NONE))
    assert "\x1b[38;2;" in render(pair(), bars=True)
    many = STRIP.sub("", render(made(TEXTS["many"]), bars=True)).splitlines()
    assert (len(many), many[-2:]) == (43, ["  … and 360 more", "  special tokens 9.500"])


def test_compare_stacks_methods():
    found = [made(scores=[1, 2, 3, 4, 5]), made(method="other", options={"p": 2})]
    lines = STRIP.sub("", terminal.compare(found, style=Style(ALL, DARK, 80))).splitlines()
    assert lines[0] == "good (p = 0.750) · tiny"
    assert lines[2] == "  hand       A clever film, unbelievably dull."
    assert re.fullmatch(" +0 +5.000", lines[3])  # every method has a scale of its own
    assert lines[4].strip() == "special tokens 9.500"
    assert lines[6] == "  other:p=2  A clever film, unbelievably dull."
    assert re.fullmatch(r" +-1\.000 against +for good \+1\.000", lines[7])
    assert lines[8].strip() == "special tokens +9.500"
    narrow = STRIP.sub("", terminal.compare(found, style=Style(ALL, DARK, 32))).splitlines()
    assert narrow[2:5] == ["  hand", "  A clever film, unbelievably", "  dull."]


def test_compare_as_a_table():
    found = [made("a b", scores=[1, 3]), made("a b", scores=[1, -1], method="other")]
    assert terminal.compare(found, style=Style(NONE)).splitlines()[1:] == [
        "                 hand   other",  # the numbers that render prints
        "a               1.000  +1.000",
        "b               3.000  -1.000",
        "special tokens  9.500  +9.500",
    ]
    of_words = [one.words() for one in found]
    assert terminal.compare(of_words, style=Style(NONE)).splitlines()[2].split() == [
        "a",
        "1.000",
        "+1.000",
    ]
    painted = terminal.compare(found, bars=True, style=Style(ALL, DARK))
    assert STRIP.sub("", painted) == terminal.compare(found, style=Style(NONE))
    with pytest.raises(alti.UsageError, match="different texts have no common rows"):
        terminal.compare([made("a b"), made("a c")], bars=True)
    with pytest.raises(alti.UsageError, match="nothing to compare"):
        terminal.compare([])


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_of_a_page_is_the_users(name):
    page = Page(html.page(made(TEXTS[name])))
    assert page.texts == [visible(TEXTS[name])] * 2  # words and tokens
    assert not [tag for tag, _ in page.elements if tag in ("script", "b", "link", "img")]


def test_a_page_needs_nothing_but_itself():
    source = html.page(
        [made(TEXTS["markup"], label="<i>&\"'", model="<u>", method="</style>"), pair()]
    )
    page = Page(source)
    assert not page.having("style")
    assert not page.having("src")
    assert not page.having("href")
    assert not [name for _, given in page.elements for name in given if name.startswith("on")]
    assert "http" not in source.replace("http-equiv", "")
    digest = base64.b64encode(hashlib.sha256(html.STYLE.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in page.having("http-equiv")[0]["content"]
    assert f"<style>{html.STYLE}</style>" in source
    assert "<" not in html.STYLE


def test_known_scores_have_known_classes():
    page = Page(html.fragment(made("good so bad", scores=[0.4, 0.0, -0.2])))
    good, so, bad = [
        given for given in page.having("data-score") if "alti-special" not in given.get("class", "")
    ][:3]
    assert (good["class"], good["data-score"], good["aria-label"]) == (
        "alti-f20",
        "+0.400",
        "good, +0.400 for good",
    )
    assert (bad["class"], bad["data-score"], bad["aria-label"]) == (
        "alti-a10",
        "−0.200",
        "bad, −0.200 against good",
    )
    assert "tabindex" not in so
    assert "class" not in so
    assert good["tabindex"] == "0"
    assert good["title"] == "good +0.400"
    assert html.class_of(0) == ""


def test_attributes_cannot_be_left():
    nasty = '" onfocus="alert(1)'
    found = made(
        "good film", scores=[0.4, 0.1], label=nasty, model=nasty, tokens=(nasty, nasty, ">", "'")
    )
    page = Page(html.page(found, words=False))
    assert not page.having("onfocus")
    assert f"{nasty} 0.400" in [given["title"] for given in page.having("title")]
    assert nasty in [given["data-token"] for given in page.having("data-token")]


def test_special_tokens_have_a_score_but_no_colour():
    page = Page(html.fragment(made("good film", scores=[0.4, 0.1])))
    special = next(given for given in page.having("data-token"))
    assert (special["class"], special["data-score"]) == ("alti-special alti-added", "9.000")
    assert [given["class"] for given in page.having("tabindex")] == ["alti-f20", "alti-f5"] * 2
    assert "\x1b[2m[CLS] \x1b[0m" in render(made("good film", scores=[0.4, 0.1]), words=False)


def test_every_class_is_in_the_stylesheet_and_can_be_read():
    rules = dict(re.findall(r"\.alti \.(alti-[fa]\d+) \{ (.*?) \}", html.STYLE))
    assert set(rules) == {html.class_of(level) for level in range(-STEPS, STEPS + 1) if level}
    for rule in rules.values():
        found = re.findall(r"light-dark\((#\w{6}), (#\w{6})\)", rule)
        (light, dark), (ink, ink_in_dark) = found
        assert contrast(light, ink) >= 4.5
        assert contrast(dark, ink_in_dark) >= 4.5


def test_every_other_colour_can_be_read():
    names = dict(re.findall(r"--([\w-]+): light-dark\((.*?)\);", html.STYLE))
    for text, ground in (("ink", "paper"), ("faint", "paper"), ("ink", "table"), ("on-tip", "tip")):
        for a, b in zip(names[text].split(", "), names[ground].split(", "), strict=True):
            assert contrast(a, b) >= 4.5


def test_words_and_tokens_are_both_there():
    source = html.fragment(pair())
    page = Page(source)
    assert page.texts == ["A clever film", "a dull plot"] * 2
    assert source.count("alti-added") == 3
    assert [given["data-token"] for given in page.having("data-token")] == [
        "[CLS]",
        "[SEP]",
        "[SEP]",
    ]
    assert [given["type"] for given in page.having("type")] == ["checkbox"]
    assert not page.having("checked")
    assert Page(html.fragment(pair(), words=False)).having("checked")
    assert 'title="du −0.500 ##ll −0.300"' in source


def test_methods_of_one_text_are_stacked():
    found = [
        made(),
        made(method="other"),
        made("another text"),
        made("another text", label="bad", probability=None),
    ]
    page = Page(html.page(found))
    assert [tag for tag, _ in page.elements].count("section") == 2
    assert [tag for tag, _ in page.elements].count("h3") == 4
    assert "2 texts explained" in html.page(found)
    ids = [given["id"] for given in page.having("id")]
    assert len(ids) == len(set(ids))
    assert html.page(found) == html.page(found)


def test_directions_and_themes():
    page = Page(html.page(made(TEXTS["arabic"]), theme="dark"))
    assert all(
        given["dir"] == "auto" for _, given in page.elements if given.get("class") == "alti-text"
    )
    assert page.having("data-theme")[0]["data-theme"] == "dark"
    assert not Page(html.page(made())).having("data-theme")
    with pytest.raises(alti.UsageError, match="theme 'pink' does not exist"):
        html.page(made(), theme="pink")


def test_a_notebook_gets_the_style_too():
    found = made()
    assert found._repr_html_().startswith("<style>")
    assert html.fragment(found) in found._repr_html_()
    assert found.to_html() == html.page(found)


@pytest.fixture(scope="module")
def explained():
    return alti.load(device="cpu").explain("A clever film, unbelievably dull.")


def test_a_notebook_card_has_layers_and_words(explained):
    source = explained._repr_html_()
    page = Page(source)
    radios = [given for given in page.having("type") if given["type"] == "radio"]
    assert len(radios) == len(explained.layers) == 6
    assert ["checked" in given for given in radios] == [False] * 5 + [True]
    assert not [tag for tag, _ in page.elements if tag in ("script", "link", "img")]
    assert "http" not in source
    cards = source.split('<div class="alti-layer">')[1:]
    for layer, shown in enumerate(cards):
        row = explained.relevance(layer)[explained.position]
        words = replace(explained, scores=row).words()
        assert shown.count('<p class="alti-text"') == 2  # by words and by tokens
        numbers = re.findall(r'data-score="([\d.]+)"', shown.partition("alti-tokens")[0])
        assert [float(number) for number in numbers] == pytest.approx(
            words.scores.tolist(), abs=6e-4
        )
    assert len({re.search(r'alti-ramp"></span>([\d.]+)', shown)[1] for shown in cards}) == 1
    assert "alti-layer" not in html.page(explained).partition("</style>")[2]


def test_a_list_of_results_is_a_table(explained):
    shown = alti.cards.table([explained, made("<b>good</b> so bad", method="alti", model="tiny")])
    page = Page(shown._repr_html_())
    assert [tag for tag, _ in page.elements].count("tr") == 3
    assert not [tag for tag, _ in page.elements if tag in ("script", "b")]
    assert "2 results" in shown
    assert "alti · minilm-l6-sst2" in shown
    assert "alti · tiny" in shown
    same = alti.cards.table([explained, explained])
    assert "2 results · alti · minilm-l6-sst2 · shares of 1" in same
    assert '<bdi class="alti-pair"><span class="alti-f20" dir="auto">dull</span>0.' in same


def test_several_predictions_are_a_table_in_a_notebook():
    model = tiny.speaking("llama", "AutoModelForCausalLM", "bpe")
    several = alti.explain(model, tiny.tokenizer("bpe"), "A clever film", positions="all")
    assert several._repr_html_().count("<tr>") == len(several) + 1


def test_a_view_of_words_says_what_it_leaves_out():
    words, tokens = html.fragment(made()).split('<div class="alti-tokens">')
    assert 'class="alti-rest" title="Tokens like [CLS]' in words
    assert ">special tokens +9.500</span>" in words
    assert "alti-rest" not in tokens
    assert "outside of the words +9.500" in html.fragment(made().words())


def test_bins_are_the_papers():
    assert latex.BINS == ("FFFFFF", "D0E1F2", "94C4DF", "4A98C9", "1764AB")
    assert [latex.bin_of(score / 10, 0.0, 1.0) for score in range(11)] == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        4,
        4,
    ]
    assert latex.bin_of(0.3, 0.3, 0.3) == 0
    assert latex.bin_of(float("nan"), 0, 1) == 0


def test_scores_against_have_shades_of_their_own():
    shades = latex.Shades.of([0.483, -0.176, -0.01, float("nan")])
    assert (shades.low, shades.high, shades.signed) == (0.0, 0.483, True)
    assert [shades.shade(score) for score in (0.483, 0.176, 0.01, -0.01, -0.176, -0.483)] == [
        4, 1, 0, 0, 5, 8,
    ]  # fmt: skip
    assert latex.Shades.of([0.2, 0.4]).shade(0.2) == 0  # unsigned: the paper's range
    hues = [rgb(f"#{colour}") for colour in latex.SHADES[1:]]
    assert all(blue > red for red, _, blue in hues[:4])
    assert all(red > blue for red, _, blue in hues[4:])  # against is orange
    for number, colour in enumerate(latex.SHADES):
        ink = "#ffffff" if r"{white}" in latex._box("x", number) else "#000000"
        assert contrast(f"#{colour}", ink) >= 4.5
    found = latex.table(made("good so bad", scores=[0.4, 0.0, -0.2], method="absence"))
    row = next(line for line in found.splitlines() if "against" in line)
    assert r"{\color{gray}\ensuremath{-}0.400 against}" in row
    assert "for good +0.400 logits" in row
    assert [int(n) for n in re.findall(r"altiword\{(\d)\}", row)] == [8, 7, 6, 5, 0, 1, 2, 3, 4]


def test_the_numbers_of_a_row_have_as_many_digits():
    """Also where a word outweighs each of its tokens."""
    found = tiny.attribution(
        text="goodness me",
        method="hand",
        tokens=("[CLS]", "good", "ness", "me", "[SEP]"),
        offsets=((0, 0), (0, 4), (4, 8), (9, 11), (0, 0)),
        scores=torch.tensor([0.05, 0.09, 0.08, 0.01, 0.06]),
        special=torch.tensor([True, False, False, False, True]),
        segments=(-1, 0, 0, 0, -1),
    )
    row = next(line for line in latex.table(found).splitlines() if "special tokens" in line)
    assert re.findall(r"\d\.\d+", row) == ["0.010", "0.170", "0.110"]


def test_a_table_of_methods():
    found = latex.table(
        [made("good so bad", scores=[0.4, 0.1, -0.2]), made("good so bad", method="a_b")]
    )
    assert r"\altiword{4}{white}{good}" in found
    assert r"\altiword{0}{black}{so}" in found
    assert r"\altiword{6}{black}{bad}" in found
    assert r"\raggedright a\_\allowbreak{}b & " in found
    assert r"\textbf{good} ($p = 0.750$)" in found
    assert latex.table(pair()).count(r"\tabularnewline") == 4  # head, two texts, the scale
    assert r"\altiword{8}{white}{dull}" in latex.table(pair())


def test_a_table_of_tokens():
    found = latex.table(made("good so bad", scores=[0.4, 0.1, -0.2]), words=False)
    assert (
        r"{\color{gray}[CLS]} \altiword{4}{white}{good}" in found
    )  # [CLS] has 9, and shades nothing
    tokens = latex.table(pair(), words=False)
    assert r"\altiword{8}{white}{du}\altiword{7}{black}{ll}" in tokens
    assert tokens.count("[SEP]") == 2
    assert pair().to_latex(words=False) == tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "\\ { } $ & # ^ _ ~ %",
            r"\textbackslash{} \{ \} \$ \& \# \textasciicircum{} \_ \textasciitilde{} \%",
        ),
        ("a--b ,, 'x'", r"a-{}-{}b ,{},{} \textquotesingle{}x\textquotesingle{}"),
        ("naïve e\u0301", "naïve é"),
        ("ế Đặng ǰ", r"\'{\^{e}} Đ\d{\u{a}}ng \v{j}"),
        ("α ≤ ά", r"\ensuremath{\alpha} \ensuremath{\leq} \ensuremath{\acute{\alpha}}"),
        ("😀", r"\altiglyph{}{1F600}{😀}"),
        (
            "电 語 한",
            r"\altiglyph{gbsn}{7535}{电} \altiglyph{bsmi}{8A9E}{語} \altiglyph{mj}{D55C}{한}",
        ),
        ("ж", r"\altiglyph{cyrillic}{0436}{ж}"),
        ("ﬁ ⅷ", "fi viii"),
        ("\x1b \ufffd a\u200bb", r"\alticode{001B} \alticode{FFFD} ab"),
    ],
)
def test_letters_of_latex(text, expected):
    assert latex.escaped(text) == expected


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_documents_compile(tmp_path):
    found = [made(text, label=text[:20], method="a_%{method}") for text in TEXTS.values()]
    found += [
        pair(),
        made("", scores=[]),
        made("naïve ế Łódź жизнь 한국어 日本語 ελληνικά ∀x ħ हिन्दी שלום \U0010ffff"),
    ]
    (tmp_path / "views.tex").write_text(latex.document(found), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "views.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120)
    log = (tmp_path / "views.log").read_text(errors="replace")
    assert done.returncode == 0, log[-2000:]
    assert "Overfull" not in log
    assert "Missing character" not in log
    assert (tmp_path / "views.pdf").stat().st_size > 10_000
    (tmp_path / "paper.tex").write_text(
        "\\documentclass{article}\\usepackage[T1]{fontenc}\\usepackage{xcolor}\\begin{document}"
        f"{made().to_latex()}{pair().to_latex()}\\end{{document}}"
    )
    subprocess.run(
        [*command[:-1], "paper.tex"], cwd=tmp_path, capture_output=True, check=True, timeout=60
    )
    assert "Overfull" not in (tmp_path / "paper.log").read_text(errors="replace")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_a_row_begins_on_the_line_of_its_method(tmp_path):
    """Special tokens and legends begin with a colour, which had put them a line lower."""
    rows = made("good so bad", scores=[0.4, 0.1, -0.2]).to_latex(words=False)
    (tmp_path / "row.tex").write_text(
        "\\documentclass{article}\\usepackage[T1]{fontenc}\\usepackage{xcolor}\\begin{document}"
        f"\\setbox0\\vbox{{{rows}}}\\showthe\\dimexpr\\ht0+\\dp0\\end{{document}}"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "row.tex"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60)
    height = re.search(r"> ([\d.]+)pt", (tmp_path / "row.log").read_text(errors="replace"))
    assert float(height[1]) < 50  # three lines of 12 points and a little space


def test_a_document_of_its_own():
    assert made().to_latex(document=True) == latex.document(made())
    assert made().to_latex() == latex.table(made())


@pytest.mark.parametrize("scores", [[0, 0, 0, 0, 0], [float("nan"), 1, float("inf"), 0, 0]])
def test_scores_without_information(scores):
    found = made(scores=scores)
    Page(html.page(found))
    assert "clever" in render(found)
    assert "clever" in latex.table(found)


def test_no_words_at_all():
    found = made("", scores=[])
    assert Page(html.page(found)).texts == ["", ""]
    assert "every score is 0" in render(found)
    assert latex.table(found)
    assert render(found, bars=True).splitlines()[1:] == [f"  {DIM}special tokens 9.500{RESET}"]
    bare = replace(made(), source=replace(made().source, segments=()))
    assert passages(bare)[0][0].text == "A"


def test_a_view_of_words_is_a_view_too():
    assert Page(html.page(made().words())).texts == [TEXTS["plain"]] * 2
    assert render(made().words()) == render(made()).replace(
        "special tokens", "outside of the words"
    )


def test_every_view_names_what_it_shows():
    """The model, the method, the class and its rival, and what the scale is of."""
    label = "good rather than bad"
    for method, options, unit in (
        ("alti", {"p": 2}, "shares of 1"),
        ("linear", {}, f"logits of {label}"),
        ("input_x_gradient", {"aggregate": "sum"}, f"probability of {label}"),
        ("gradient", {}, f"size of the effect on probability of {label}"),
    ):
        found = made("good so bad", [0.4, 0.1, 0.2], method=method, options=options, label=label)
        signed = made("good so bad", [0.4, 0.1, -0.2], method=method, options=options, label=label)
        named = method if not options else f"{method}:{next(iter(options))}"
        coloured = STRIP.sub("", render(found))
        bars = terminal.render(found, style=Style(NONE))
        page = html.fragment(found)
        tex = latex.table(found).replace(r"\_\allowbreak{}", "_").replace(r":\allowbreak{}", ":")
        for view in (coloured, bars, page, tex):
            assert all(name in view for name in (label, "tiny", named, unit)), (method, view)
        table = terminal.compare([found, signed], style=Style(NONE))
        assert unit.split(" of ")[0] in table.splitlines()[2]
        assert "against" in html.fragment(signed)
        assert f"for {label}" in html.fragment(signed)


def test_nothing_to_show_is_one_sentence():
    for view in (html.page, html.fragment, latex.table, latex.document):
        with pytest.raises(alti.UsageError, match="nothing to show"):
            view([])


@pytest.fixture(scope="module")
def unread():
    """The embedded model knows neither the emoji nor the sign; it does know [UNK]."""
    return alti.load(device="cpu").explain("Loved it \U0001f60d so [UNK] 6\U0001f389")


def test_what_the_model_did_not_know_is_kept(unread, tmp_path):
    marks = dict(zip(unread.tokens, unread.source.unknown, strict=True))
    assert (marks["loved"], marks["[CLS]"]) == ("", "")
    typed = [
        unread.text[slice(*unread.offsets[i])] for i, m in enumerate(unread.source.unknown) if m
    ]
    assert typed == ["\U0001f60d", "6\U0001f389"]  # not the [UNK] that was typed
    assert unread.words().source.unknown == ("", "", "[UNK]", "", "", "[UNK]")
    unread.save(tmp_path / "found.alti")
    assert alti.Attribution.load(tmp_path / "found.alti").source.unknown == unread.source.unknown
    assert "unknown" not in made().to_dict()["source"]  # older files keep their sums


@pytest.mark.parametrize("words", [True, False])
def test_every_view_marks_what_the_model_did_not_know(unread, words):
    face = "\U0001f60d"
    assert f"{face}[UNK]" in STRIP.sub("", render(unread, words=words))
    assert f"{face} [UNK]" in terminal.render(unread, words=words, style=Style(NONE))
    assert f"{face} [UNK]" in terminal.compare([unread], words=words, style=Style(NONE))
    page = html.fragment(unread, words=words)
    assert page.count(f'{face}<small class="alti-unknown">[UNK]</small>') == 2
    assert "the model does not know this and read [UNK]" in page
    assert re.search(
        r"1F60D\}\{.\}\}\{\\scriptsize\\color\{gray\}\\,\[UNK\]\}", unread.to_latex(words=words)
    )


def test_what_was_read_stays_where_a_long_name_is_cut():
    model = alti.load(device="cpu")
    found = model.explain(f"It is {'x' * 120} so")
    for kind in ("tokens", "matrix", "graph"):
        drawn = [each.get_text() for each in found.plot(kind).findobj(Text)]
        assert [name for name in drawn if re.fullmatch(r"x+… \[UNK\]", name)], kind
    assert clipped_name(f"{'x' * 120} [UNK]", 16) == "xxxxxxxxx… [UNK]"
    assert clipped_name("a [b] cccccccccccccccc", 16) == "a [b] ccccccccc…"
    maps = model.heads(found.text, layer=0)
    assert "xxxxxxxxx… [UNK]" in str(maps)
    assert any("x… [UNK]" in each.get_text() for each in maps.plot().findobj(Text))


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("I loved it \U0001f60d.", "\U0001f60d"),
        ("So wow\U0001f60d!", "wow\U0001f60d"),
        ("So (\U0001f44d\U0001f3fd) yes", "\U0001f44d\U0001f3fd"),
        ("So \U0001f468\u200d\U0001f469, yes", "\U0001f468\u200d\U0001f469"),
    ],
)
def test_punctuation_beside_it_is_not_what_the_model_did_not_know(text, typed):
    found = alti.load(device="cpu").explain(text, method="absence")
    assert [piece.text for part in passages(found) for piece in part if piece.unknown] == [typed]
    behind = text[text.index(typed) + len(typed)]
    assert f"{typed}[UNK]{behind}" in STRIP.sub("", render(found))
    assert f"{typed} [UNK]" in terminal.render(found, style=Style(NONE))
    assert f'{typed}<small class="alti-unknown">[UNK]</small></span>' in html.fragment(found)
    tex = found.to_latex()
    behind = tex[tex.index(f"{ord(typed[-1]):X}") :]
    assert re.search(r"^[^}]*\}\{.\}\}\{\\scriptsize\\color\{gray\}\\,\[UNK\]\}", behind)


def test_texts_can_be_compared_on_one_scale():
    weak, strong = made("good so bad", [0.1, 0.0, 0.05]), made("great so bad", [0.4, 0.0, -0.1])
    alone = html.fragment([weak, strong])
    together = html.fragment([weak, strong], one_scale=True)
    assert alone.count("alti-f20") == 4  # each by words and by tokens
    assert together.count("alti-f20") == 2
    assert together.count("for good +0.400") == 4
    assert r"\altiword{4}{white}{good}" in latex.table([weak, strong])
    assert r"\altiword{1}{black}{good}" in latex.table([weak, strong], one_scale=True)


@pytest.mark.parametrize(
    ("method", "unit"),
    [
        ("absence", "relative effect on"),
        ("consensus", "relative effect on"),
        ("linear", "logits of"),
    ],
)
def test_sums_of_shares_are_not_called_logits(method, unit):
    """Views that are divided by their sums say how sources compare, not what they are worth."""
    model = alti.Model(
        tiny.speaking("bert", "AutoModelForSequenceClassification"), tiny.tokenizer()
    )
    found = model.explain("a long and clumsy film", method=method)
    assert f"scores: {unit} {found.label}" in terminal.render(found, style=Style(NONE))
    assert f"scores: {unit} {found.label}" in terminal.render(
        alti.Attribution.from_dict(found.to_dict()), style=Style(NONE)
    )


def test_what_messages_are_worth_is_in_logits():
    model = alti.Model(tiny.speaking("gpt2", "AutoModelForCausalLM"), tiny.tokenizer())
    found = model.explain("a long and clumsy film", method="absence")
    assert "scores: logits of" in terminal.render(found, style=Style(NONE))
