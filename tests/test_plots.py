"""Pictures: what was given is what is drawn, at every size, and nothing else is touched."""

import sys
from collections.abc import Sequence
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import alti
from alti.views import plots
from alti.views.plots import look
from alti.views.tables import Cell, Table

import tiny
from speed import mostly_slow, slow

ODD = (
    "[CLS]",
    "$5",
    "$x$",
    "a_b^c",
    r"\frac",
    "%&#{",
    "我喜欢",
    "👍🏽",
    "हिन्दी",
    "العربية",
    "\n",
    "Ġa",
    " ",
    "x" * 90,
    "[SEP]",
)
VIEWS = ("tokens", "matrix", "layers", "graph")


def attribution(
    tokens: int | Sequence[str] = 5, layers: int = 3, *, signed: bool = False, **changes: object
) -> alti.Attribution:
    """A result made of chance, whose words are its tokens."""
    names = [f"w{i}" for i in range(tokens)] if isinstance(tokens, int) else tokens
    chance, n = torch.Generator().manual_seed(0), len(names)
    ends = np.cumsum([len(name) + 1 for name in names]).tolist()
    maps = torch.rand(layers, n, n, generator=chance) ** 8 + torch.eye(n)
    given = {
        "text": " ".join(names),
        "tokens": tuple(names),
        "offsets": tuple(
            (end - 1 - len(name), end - 1) for name, end in zip(names, ends, strict=True)
        ),
        "scores": torch.rand(n, generator=chance) - 0.5 * signed,
        "special": torch.zeros(n, dtype=torch.bool),
        "method": "alti",
        "label": "negative",
        "probability": 0.75,
        "layers": maps / maps.sum(-1, keepdim=True),
        "position": 0,
    }
    return tiny.attribution(**{**given, **changes})


def drawn(kind: str, found: alti.Attribution, **options: object) -> Axes:
    """The first Axes of a view."""
    return np.ravel(getattr(plots, kind)(found, **options))[0]


def names_of(axis) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.fixture(autouse=True)
def untouched():
    """No figure of pyplot's is left behind, no setting changed."""
    before = dict(mpl.rcParams)
    yield
    assert pyplot.get_fignums() == []
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("kind", VIEWS)
@mostly_slow("n", [1, 5, 200], quick=[5])
def test_every_view_at_every_size(kind, n, tmp_path):
    ax = drawn(kind, attribution(n))
    assert isinstance(ax, Axes)
    ax.figure.savefig(tmp_path / "a.png", dpi=40)
    assert (tmp_path / "a.png").stat().st_size > 500
    width, height = ax.figure.get_size_inches()
    assert width <= 20
    assert height <= 20


@slow
@pytest.mark.parametrize("kind", VIEWS)
def test_every_format(kind, tmp_path):
    figure = attribution(5).plot(kind)
    for ending, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        figure.savefig(tmp_path / f"a.{ending}")
        assert (tmp_path / f"a.{ending}").read_bytes().startswith(start)
    assert figure._repr_png_().startswith(b"\x89PNG")  # what notebooks ask for


@pytest.mark.parametrize("kind", ["tokens", "matrix", "graph"])
def test_a_given_ax_is_used(kind):
    figure = Figure(figsize=(9, 3))
    first, second = figure.subplots(1, 2)
    assert drawn(kind, attribution(30), ax=second) is second
    assert second.has_data()
    assert not first.has_data()
    assert figure.axes == [first, second]


def test_given_axes_are_used_for_layers():
    panels = Figure().subplots(2, 2)
    assert plots.layers(attribution(5, 4), axes=panels).tolist() == panels.ravel().tolist()
    with pytest.raises(alti.UsageError, match="4 axes for 3 layers"):
        plots.layers(attribution(5, 3), axes=panels)


def test_bars_are_scores():
    found = attribution(5, signed=True)
    ax = plots.tokens(found)
    assert [bar.get_width() for bar in ax.patches] == pytest.approx(found.scores.tolist())
    assert names_of(ax.yaxis) == list(found.tokens)
    colours = {to_hex(bar.get_facecolor()).upper() for bar in ax.patches if bar.get_width() < 0}
    assert colours == {look.VERMILLION}
    texts = " ".join(text.get_text() for text in ax.texts)
    assert "against negative" in texts
    assert f"{found.scores[0]:+.3f}".replace("-", "−") in texts
    assert ax.get_title(loc="left") == "negative (p = 0.750)"
    assert "alti" in texts


def test_words_are_bars_unless_tokens_are_asked_for():
    offsets = ((0, 0), (0, 2), (2, 7))
    special = torch.tensor([True, False, False])
    tokens = ("[CLS]", "un", "##lucky")
    found = attribution(tokens, text="unlucky", offsets=offsets, special=special)
    assert names_of(plots.tokens(found).yaxis) == ["unlucky"]
    assert names_of(plots.tokens(found, words=False).yaxis) == ["[CLS]", "un", "##lucky"]
    assert not plots.tokens(
        attribution(("[CLS]",), special=torch.tensor([True]))
    ).patches  # no words, no bars


def test_of_many_bars_the_largest_are_shown():
    found = attribution(200, signed=True)
    ax = plots.tokens(found)
    lengths = [bar.get_width() for bar in ax.patches]
    assert len(lengths) == 40
    assert lengths == sorted(lengths, reverse=True)
    smallest = min(map(abs, lengths))
    assert sum(abs(score) >= smallest - 1e-9 for score in found.scores.tolist()) == 40
    assert any("40 largest of 200" in text.get_text() for text in ax.texts)


def test_matrices_are_relevances_or_contributions():
    found = attribution(5, 4)
    for layer in (0, 2, -1):
        image = plots.matrix(found, layer).images[0].get_array()
        np.testing.assert_allclose(image, found.relevance(layer), rtol=1e-6)
        image = plots.matrix(found, layer, contributions=True).images[0].get_array()
        np.testing.assert_allclose(image, found.layers[layer], rtol=1e-6)
    for layer, ax in enumerate(plots.layers(found)):
        np.testing.assert_allclose(ax.images[0].get_array(), found.relevance(layer), rtol=1e-6)
        assert ax.get_title(loc="left") == f"layer {layer + 1}"
    assert "layer 3 of 4" in plots.matrix(found, 2).texts[0].get_text()


def test_layers_share_one_scale():
    panels = plots.layers(attribution(5, 7), contributions=True)
    assert len({ax.images[0].norm for ax in panels}) == 1
    assert [bool(names_of(ax.yaxis)) for ax in panels] == [
        True,
        False,
        False,
        False,
        True,
        False,
        False,
    ]
    assert [bool(names_of(ax.xaxis)) for ax in panels] == [False] * 3 + [
        True
    ] * 4  # the lowest of each column


def test_layers_of_several_methods_can_share_one_scale():
    alone = [ax.images[0].norm.vmax for ax in plots.layers(attribution())]
    together = [ax.images[0].norm.vmax for ax in plots.layers(attribution(), largest=2.0)]
    assert set(alone) != {2.0}
    assert set(together) == {2.0}


def test_layers_are_as_wide_as_a_page():
    """So that their labels can be read where the picture is 700 pixels wide."""
    for count in (5, 20, 40):
        figure = plots.layers(attribution(count, 6))[0].get_figure()
        assert figure.get_figwidth() < 9
    assert len({ax.get_position().x0 for ax in plots.layers(attribution(20, 6))}) == 2


def test_the_arrow_of_a_matrix_is_explained():
    found = attribution()
    assert "◂ the row that is read" in plots.matrix(found).texts[0].get_text()
    assert "◂ the row that is read" in plots.layers(found)[0].get_figure()._suptitle.get_text()
    nowhere = replace(found, prediction=replace(found.prediction, position=None))
    assert "◂" not in plots.matrix(nowhere).texts[0].get_text()


@pytest.mark.parametrize("ending", ["svg", "png"])
@pytest.mark.parametrize("kind", VIEWS)
def test_every_plot_names_the_rival(kind, ending, tmp_path):
    """In what is drawn: text paths carry their text in a comment, pixels cannot be read."""
    found = attribution(label="good rather than bad", model="tiny")
    figure = found.plot(kind)
    written = [text.get_text() for text in figure.findobj(match=lambda a: hasattr(a, "get_text"))]
    assert any("good rather than bad" in text for text in written)
    file = tmp_path / f"plot.{ending}"
    figure.savefig(file)
    if ending == "svg":
        assert "good rather than bad" in file.read_text()
        return
    bare = attribution(label="good", model="tiny").plot(kind)
    bare.savefig(tmp_path / "bare.png")
    assert (tmp_path / "bare.png").read_bytes() != file.read_bytes()


def test_names_that_do_not_fit_are_left_out():
    assert len(names_of(plots.matrix(attribution(5)).xaxis)) == 5
    assert 50 < len(names_of(plots.matrix(attribution(200)).xaxis)) < 200
    assert names_of(plots.layers(attribution(200))[0].yaxis) == []


@pytest.mark.parametrize(
    ("n", "threshold"), [(5, 0.0), (5, 0.05), (5, 0.4), (5, 1.0), (200, 0.004)]
)
def test_edges_are_contributions_above_the_threshold(n, threshold):
    found = attribution(n, 2)
    grey, blue = (
        c
        for c in plots.graph(found, threshold=threshold).collections
        if isinstance(c, LineCollection)
    )
    expected = (found.layers > threshold).sum().item()
    assert len(grey.get_segments()) == expected
    assert len(blue.get_segments()) <= expected  # without what could not be seen
    if n == 5 and expected:
        starts = {
            (*np.rint(line[0]).astype(int), np.rint(line[-1])[1]) for line in grey.get_segments()
        }
        assert starts == {
            (layer, j, i) for layer, i, j in (found.layers > threshold).nonzero().tolist()
        }


def test_the_graph_ends_in_the_scores():
    found = attribution(6, 3, position=2)
    dots = plots.graph(found).collections[-1].get_sizes().reshape(4, 6)
    np.testing.assert_allclose(dots[0] / dots[0].sum(), found.relevance()[2], rtol=1e-5)
    assert np.flatnonzero(dots[-1]).tolist() == [2]
    mean = plots.graph(attribution(6, 3, position=None)).collections[-1].get_sizes().reshape(4, 6)
    np.testing.assert_allclose(mean[0] / mean[0].sum(), found.relevance().mean(0), rtol=1e-5)


def test_blue_lines_are_as_strong_as_what_passes():
    found = attribution(4, 1, position=1)
    _, blue, _ = plots.graph(found, threshold=0.0).collections
    alphas = {tuple(np.rint(line[[0, -1], 1])): colour[3] for line, colour in zip(
        blue.get_segments(), blue.get_colors(), strict=True)}  # fmt: skip
    row = found.layers[0, 1] / found.layers[0, 1].max()
    assert alphas == {
        (j, 1): pytest.approx(share**0.5) for j, share in enumerate(row.tolist()) if share > 0.001
    }


@pytest.mark.parametrize("kind", VIEWS)
@pytest.mark.parametrize("method", ["alti", "globenc"])
def test_a_real_attribution_of_float64(kind, method):
    model = alti.Model(
        tiny.speaking("bert", "AutoModelForSequenceClassification"), tiny.tokenizer(), name="tiny"
    )
    figure = model.explain("The acting is better than the plot.", method=method).plot(kind)
    figure.draw_without_rendering()


@slow
@pytest.mark.parametrize("kind", VIEWS)
def test_tokens_are_drawn_as_they_are_written(kind, tmp_path):
    options = {"words": False} if kind == "tokens" else {}
    ax = drawn(kind, attribution(ODD, label="$a_1$", model=r"\m_$"), **options)
    shown = names_of(ax.yaxis)
    assert shown[1:6] == ["$5", "$x$", "a_b^c", r"\frac", "%&#{"]
    assert shown[10] == "↵"
    assert shown[12] == "␣"
    assert shown[13] == "x" * 27 + "…"
    assert len(shown[6]) == 3  # with glyphs or without
    for ending in ("png", "svg", "pdf"):
        ax.figure.savefig(
            tmp_path / f"a.{ending}"
        )  # a missing glyph would warn, and a warning is an error


def test_mathematics_is_not_read():
    ax = plots.tokens(attribution(("$x^2$",)), words=False)
    [label] = ax.get_yticklabels()
    assert not label.get_parse_math()
    assert label.get_window_extent().width > 25  # the formula is half as wide


def test_plot_knows_its_kinds():
    assert isinstance(attribution().plot(), Figure)
    assert "layer 2 of 3" in attribution().plot("matrix", layer=1).axes[0].texts[0].get_text()
    with pytest.raises(
        alti.UsageError, match="'bars' does not exist: choose from tokens, matrix, layers, graph"
    ):
        attribution().plot("bars")
    for kind in VIEWS[1:]:
        with pytest.raises(alti.UsageError, match="no maps per layer"):
            attribution(layers=1).words().plot(kind)
    with pytest.raises(alti.UsageError, match="layer = 7 does not exist"):
        attribution().plot("matrix", layer=7)


def test_a_user_s_style_is_kept_out():
    with mpl.rc_context(
        {"axes.grid": True, "figure.facecolor": "black", "axes.facecolor": "black"}
    ):
        ax = plots.matrix(attribution())
    assert to_hex(ax.figure.get_facecolor()) == "#ffffff"
    assert not any(line.get_visible() for line in ax.get_xgridlines())


def test_without_matplotlib_one_sentence(monkeypatch):
    for name in [
        name
        for name in sys.modules
        if name.split(".")[0] == "matplotlib" or name.startswith("alti.views.plots")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(alti.LoadError, match=r"pip install 'alti\[plots\]'"):
        attribution().plot()


def test_curves_take_means_bands_and_what_bench_returns():
    means = {"alti": [0.9, 0.5, 0.4, 0.3], "random": [0.9, 0.8, 0.7, 0.6]}
    ax = plots.curves({**means, "none": []})
    assert [line.get_ydata().tolist() for line in ax.lines] == list(means.values())
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "random",
        "alti",
    ]  # from top to bottom
    bands = {
        name: (line, np.array(line) - 0.1, np.array(line) + 0.1) for name, line in means.items()
    }
    ax = plots.curves(bands, texts=[9, 9, 5, 1])
    assert len(ax.collections) == 2
    assert ax.collections[0].get_datalim(ax.transData).y0 == pytest.approx(0.2)
    assert names_of(ax.child_axes[0].xaxis) == ["9", "9", "5", "1"]
    with pytest.raises(alti.UsageError, match="curve 'alti' has 'means' and no 'mean'"):
        plots.curves({"alti": {"means": [1]}})


def test_curves_of_a_benchmark(tmp_path):
    plan = alti.bench.Plan("m", "d", methods=("alti", "linear"), metrics=("probability_drop",))
    line, by_size = [0.9, 0.5, 0.4], [0.9, 0.6, 0.5]
    rows = [
        {"text": 0, "method": "alti", "values": {"probability_drop": line}},
        {"text": 1, "method": "alti", "values": {"probability_drop": line[:2]}},
        {
            "text": 0,
            "method": "linear",
            "values": {"probability_drop": line, "probability_drop |·|": by_size},
        },
    ]
    ax = plots.curves(alti.bench.curves(plan, rows))
    names = {text.get_text() for text in ax.get_legend().get_texts()}
    assert names == {"alti", "linear", "linear |·|"}  # alti ranks alike by size: one line
    assert names_of(ax.child_axes[0].xaxis) == ["2", "2", "1"]
    assert ax.lines[1].get_color() == ax.lines[2].get_color()
    assert ax.lines[1].get_linestyle() != ax.lines[2].get_linestyle()


def test_many_curves_look_different():
    given = {f"m{i}": [0.9, i / 20] for i in range(20)} | {
        f"m{i} |·|": [0.8, i / 20] for i in range(20)
    }
    looks = [(x.get_color(), x.get_linestyle(), x.get_marker()) for x in plots.curves(given).lines]
    assert len(set(looks)) == 40


def test_boxes_are_sorted_by_median():
    nan = float("nan")
    values = {
        "none": [nan],
        "low": [0.1, 0.2, 0.3],
        "high": torch.tensor([0.7, 0.8, 0.9]),
        "middle": [0.5, nan, 0.5],
    }
    ax = plots.agreement(values, xlabel="Jaccard-25 %")
    assert names_of(ax.yaxis) == ["low", "middle", "high"]  # from the bottom
    assert len(ax.patches) == 3
    medians = sorted(
        {float(line.get_xdata()[0]) for line in ax.lines if to_hex(line.get_color()) == look.INK}
    )
    assert medians == pytest.approx([0.2, 0.5, 0.8])
    assert ax.get_xlabel() == "Jaccard-25 %"


def test_anisotropy_is_solid_and_dashed():
    ax = plots.anisotropy(
        {"bert": {"outputs": [0.1, 0.5], "transformed": [0.0, 0.3]}, "roberta": {"outputs": [0.2]}}
    )
    assert [line.get_linestyle() for line in ax.lines] == ["-", "--", "-"]
    assert ax.lines[0].get_color() == ax.lines[1].get_color() != ax.lines[2].get_color()
    assert ax.lines[1].get_xydata().tolist() == [[1, 0.0], [2, 0.3]]
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["bert", "roberta", "block outputs", "transformed vectors"]
    with pytest.raises(
        alti.UsageError, match="'output' of bert is not drawn: give 'outputs' and 'transformed'"
    ):
        plots.anisotropy({"bert": {"output": [1]}})


ROWS = (
    ("random", (Cell(0.1, 0.05, 0.15), Cell(0.3))),
    ("alti", (Cell(0.3, 0.25, 0.35, best=True), Cell(0.1))),
    ("linear", (Cell(0.2, 0.15, 0.25), None)),
)
TABLE = Table("x", ("method", "comprehensiveness ↑", "sufficiency ↓"), ROWS)


def test_methods_are_sorted_and_the_best_is_marked():
    ax = plots.methods(TABLE)
    assert names_of(ax.yaxis) == ["random", "linear", "alti"]  # from the bottom
    dots = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o"]
    assert dots == pytest.approx([0.1, 0.2, 0.3])
    assert [tuple(line.get_xdata()) for line in ax.lines if line.get_marker() != "o"][-1] == (
        0.25,
        0.35,
    )
    assert [label.get_fontweight() for label in ax.get_yticklabels()] == [
        "normal",
        "normal",
        "bold",
    ]
    assert ax.get_xlabel() == "comprehensiveness ↑"


def test_methods_of_a_column_or_a_list():
    ax = plots.methods(TABLE, column="sufficiency")
    assert names_of(ax.yaxis) == ["random", "alti"]  # smaller is better; the empty cell is left out
    assert ax.get_yticklabels()[1].get_fontweight() == "bold"
    ax = plots.methods(
        [("a", Cell(0.3)), ("b", Cell(0.5)), ("c", Cell(float("nan")))], column="AUC"
    )
    assert names_of(ax.yaxis) == ["a", "b"]
    assert ax.get_xlabel() == "AUC"
    with pytest.raises(
        alti.UsageError, match="column 'auc' has no numbers: choose from 'comprehensiveness ↑'"
    ):
        plots.methods(TABLE, column="auc")


@mostly_slow("n", [1, 5, 200], quick=[5])
def test_benchmarks_at_every_size(n, tmp_path):
    figure = Figure()
    for ax, draw in zip(
        figure.subplots(2, 2).flat, ("curves", "agreement", "anisotropy", "methods"), strict=True
    ):
        data = {
            "curves": {f"m{i}": [0.5] * n for i in range(3)},
            "agreement": {f"m{i}": [i / n] for i in range(n)},
            "anisotropy": {"bert": {"outputs": [0.5] * n}},
            "methods": [(f"m{i}", Cell(i / n)) for i in range(n)],
        }[draw]
        assert getattr(plots, draw)(data, ax=ax) is ax
        own = getattr(plots, draw)(data).figure
        assert own is not figure
        assert max(own.get_size_inches()) < 20
    figure.savefig(tmp_path / "a.png", dpi=40)


def test_colours_fall_evenly_to_the_dark():
    """Lightness of the map for matrices: L* of CIELAB, from white in equal steps."""
    rgb = look.WATER(np.linspace(0, 1, 33))[:, :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16
    steps = -np.diff(lightness)
    assert lightness[0] == pytest.approx(100)
    assert steps.min() > 0.7 * steps.mean()
    assert steps.max() < 1.3 * steps.mean()


@slow
def test_the_graph_of_a_long_text_leaves_something_and_names_it():
    """Evenly mixed maps have shares below every fixed threshold."""
    count = 200
    mixed = torch.full((2, count, count), 1 / count)
    mixed[:, :, 7] += 0.003
    found = replace(attribution(count, 2), layers=mixed / mixed.sum(-1, keepdim=True))
    ax = plots.graph(found)
    grey, blue, _ = ax.collections
    assert len(grey.get_segments()) > 0
    assert len(blue.get_segments()) >= 12
    second = next(text.get_text() for text in ax.texts if "contributions" in text.get_text())
    assert "contributions, those above 0.00" in second
    assert "w7" in [label.get_text() for label in ax.get_yticklabels()]
    widths = [text.get_text() for text in ax.get_legend().get_texts()]
    assert widths[-1].endswith("% of the prediction")
    assert plots.graph(attribution()).texts[-1].get_text().endswith("those above 0.05")


def test_predictions_have_a_scale_and_a_model():
    found = attribution(model="tiny")
    several = alti.Attributions(
        source=found.source,
        predictions=(found.prediction,) * 2,
        scores=torch.stack([found.scores, -found.scores]),
        method="absence",
        model="tiny",
    )
    ax = plots.predictions(several)
    assert "absence · tiny" in ax.texts[0].get_text()
    assert any(child.get_ylabel() == "for each prediction" for child in ax.child_axes)
