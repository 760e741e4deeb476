"""Tables by hand, and intervals against what is known of them."""

import csv
import io
import math
import shutil
import subprocess

import numpy as np
import pytest

import alti
from alti.views import tables
from alti.views.tables import Cell, Table, bootstrap, long_csv, paired

TABLE = Table(
    "Area under the curve",
    ("method", "SST-2 ↓", "IMDB", "reads"),
    (
        ("alti", (Cell(0.28, 0.2561, 0.3029, best=True), Cell(0.5), "maps")),
        ("attention_rollout", (Cell(-0.3456, -0.4, -0.0001), Cell(math.nan), None)),
    ),
    note="400 texts | 95 % intervals",
)
UGLY = r"[a] *b* \c ~d ^e |f| <g> & % $ # _ { } – − ± × ≤ ≥ ↑ ↓ → Δ"


def test_text():
    assert TABLE.text() == (
        "Area under the curve\n"
        "\n"
        "method                            SST-2 ↓   IMDB  reads\n"
        "alti                *0.280 [0.256, 0.303]  0.500  maps\n"
        "attention_rollout  -0.346 [-0.400, 0.000]      –  –\n"
        "\n"
        "400 texts | 95 % intervals\n"
    )


def test_markdown():
    assert TABLE.markdown(digits=2) == (
        "**Area under the curve**\n"
        "\n"
        "| method | SST-2 ↓ | IMDB | reads |\n"
        "|---|---:|---:|---|\n"
        "| alti | **0.28** [0.26, 0.30] | 0.50 | maps |\n"
        "| attention_rollout | -0.35 [-0.40, 0.00] | – | – |\n"
        "\n"
        "400 texts \\| 95 % intervals\n"
    )


def test_latex():
    assert TABLE.latex() == (
        "\\begin{table}\n"
        "  \\centering\n"
        "  \\caption{Area under the curve}\n"
        "  \\begin{tabular}{lrrl}\n"
        "    \\toprule\n"
        "    method & SST-2 $\\downarrow$ & IMDB & reads \\\\\n"
        "    \\midrule\n"
        "    alti & \\textbf{0.280}\\,{\\scriptsize[0.256, 0.303]} & 0.500 & maps \\\\\n"
        "    attention\\_rollout & $-$0.346\\,{\\scriptsize[$-$0.400, 0.000]} & -- & -- \\\\\n"
        "    \\bottomrule\n"
        "  \\end{tabular}\n"
        "  \\par\\smallskip{\\footnotesize 400 texts \\textbar{} 95 \\% intervals}\n"
        "\\end{table}\n"
    )


def test_csv_keeps_every_digit():
    assert TABLE.csv() == (
        "method,SST-2 ↓,SST-2 ↓ low,SST-2 ↓ high,IMDB,reads\n"
        "alti,0.28,0.2561,0.3029,0.5,maps\n"
        "attention_rollout,-0.3456,-0.4,-0.0001,,\n"
    )
    third = Table("", ("a", "b, c"), (('say "x"', (Cell(np.float64(1) / 3, np.float32(0.1), 1),)),))
    head, row = csv.reader(io.StringIO(third.csv()))
    assert head == ["a", "b, c", "b, c low", "b, c high"]
    assert row[0] == 'say "x"'
    assert [float(cell) for cell in row[1:]] == [1 / 3, float(np.float32(0.1)), 1.0]


def test_a_table_without_title_note_rows_or_cells():
    assert Table("", ("a", "b"), ()).text() == "a  b\n"
    assert Table("", ("a", "b"), ()).csv() == "a,b\n"
    assert Table("", ("a",), (("x", ()),)).markdown() == "| a |\n|---|\n| x |\n"
    assert "caption" not in Table("", ("a",), (("x", ()),)).latex()
    assert "footnotesize" not in Table("", ("a",), (("x", ()),)).latex()


def test_half_an_interval_is_none():
    for cell in (Cell(0.5, low=0.1), Cell(0.5, high=0.1), Cell(0.5, math.nan, math.nan)):
        assert Table("", ("a", "b"), (("x", (cell,)),)).csv() == "a,b\nx,0.5\n"
        assert "| 0.500 |" in Table("", ("a", "b"), (("x", (cell,)),)).markdown()


def test_a_row_of_the_wrong_length():
    with pytest.raises(
        alti.UsageError, match="row 'x' has 2 cells under the columns a, b: give one cell for each"
    ):
        Table("", ("a", "b"), (("x", (Cell(1), Cell(2))),))


def test_a_string_stays_in_its_cell():
    table = Table("", ("a", "b"), (("x\n\ny | z", ("*`<b>",)),))
    assert "| x y \\| z | \\*\\`\\<b> |" in table.markdown()
    assert len(table.text().splitlines()) == 2


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")
def test_latex_compiles(tmp_path):
    rows = (
        (UGLY, (Cell(-0.1, -0.2, 0.3, best=True), UGLY)),
        ("[x", (None, "*")),
        ("*x", (Cell(1.5), "")),
    )
    table = Table(UGLY, ("", UGLY, "b"), rows, note=UGLY).latex()
    preamble = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    document = rf"{preamble}{table}\end{{document}}"
    (tmp_path / "table.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]


def test_bootstrap_is_that_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(1).normal(size=57)
    own = stats.bootstrap(
        (values,), np.mean, n_resamples=2000, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    assert bootstrap(values)[1:] == pytest.approx((own.low, own.high), rel=1e-12)


def test_bootstrap_of_what_needs_none():
    assert bootstrap([0.25] * 7) == (0.25, 0.25, 0.25)
    assert bootstrap([3.5]) == pytest.approx((3.5, math.nan, math.nan), nan_ok=True)
    assert all(map(math.isnan, bootstrap([])))
    assert all(map(math.isnan, bootstrap([math.nan, math.nan])))


def test_bootstrap_leaves_nan_out():
    assert bootstrap([1.0, math.nan, 2.0, 4.0]) == bootstrap([1.0, 2.0, 4.0])


def test_bootstrap_is_a_quantile_of_the_means():
    # Of two values a and b, a sample's mean is a, (a + b) / 2 or b with chances 1/4, 1/2, 1/4.
    assert bootstrap([0.0, 1.0]) == (0.5, 0.0, 1.0)
    assert bootstrap([0.0, 1.0], level=0.4) == (0.5, 0.5, 0.5)
    values = np.random.default_rng(3).normal(size=400)
    mean, low, high = bootstrap(values)
    assert mean == pytest.approx(values.mean())
    half = 1.96 * values.std() / math.sqrt(400)
    assert (low, high) == (
        pytest.approx(mean - half, abs=0.1 * half),
        pytest.approx(mean + half, abs=0.1 * half),
    )


def test_bootstrap_is_the_same_every_time_and_by_parts(monkeypatch):
    values = np.random.default_rng(0).random(50)
    found = bootstrap(values, draws=100, seed=1)
    assert found == bootstrap(list(values), draws=100, seed=1)
    assert found != bootstrap(values, draws=100, seed=2)
    monkeypatch.setattr(tables, "_DRAWN_AT_ONCE", 350)  # 7 draws at a time, 2 in the last
    assert found == pytest.approx(bootstrap(values, draws=100, seed=1), abs=1e-12)


def coverage(interval) -> float:
    """The share of 200 samples of 60 values whose interval holds the true mean, 1."""
    chance = np.random.default_rng(0)
    found = [interval(chance.gamma(2.0, 0.5, size=60)) for _ in range(200)]
    return sum(low <= 1 <= high for _, low, high in found) / 200


def test_about_95_of_100_intervals_hold_the_mean():
    assert 0.90 <= coverage(lambda values: bootstrap(values, draws=500)) <= 0.99
    assert 0.70 <= coverage(lambda values: bootstrap(values, draws=500, level=0.8)) <= 0.88


def test_paired_is_narrower_than_either():
    chance = np.random.default_rng(0)
    shared = chance.normal(size=300)
    ours, theirs = (
        shared + 0.2 + 0.1 * chance.normal(size=300),
        shared + 0.1 * chance.normal(size=300),
    )
    mean, low, high = paired(ours, theirs)
    assert 0.1 < low < mean < high < 0.3
    assert high - low < 0.3 * (bootstrap(ours)[2] - bootstrap(ours)[1])
    assert paired(theirs, ours)[0] == pytest.approx(-mean)


def test_paired_takes_what_both_have():
    assert paired([1.0, 5.0, math.nan], [0.5, math.nan, 2.0])[0] == 0.5
    assert all(map(math.isnan, paired([1.0, math.nan], [math.nan, 1.0])))
    with pytest.raises(alti.UsageError, match="2 values cannot be paired with 1: give nan"):
        paired([1.0, 2.0], [1.0])


@pytest.mark.parametrize("options", [{"draws": 0}, {"level": 0.0}, {"level": 95}])
def test_bootstrap_wants_a_level_between_0_and_1(options):
    with pytest.raises(alti.UsageError, match="give 1 draw or more and a level between 0 and 1"):
        bootstrap([1.0, 2.0], **options)


def test_several_tables_are_one_csv():
    head = ("method", "comp ↑", "comp |·| ↑")
    first = Table(
        "one",
        head,
        (("alti", (Cell(0.5, 0.4, 0.6, best=True), Cell(math.nan))), ("b", (None, Cell(1.0)))),
    )
    rows = list(
        csv.DictReader(
            io.StringIO(long_csv([first, Table("two", head[:2], (("b", (Cell(2.0),)),))]))
        )
    )
    assert [
        (row["table"], row["row"], row["column"], row["value"], row["low"]) for row in rows
    ] == [
        ("one", "alti", "comp", "0.5", "0.4"),
        ("one", "alti", "comp by size", "", ""),
        ("one", "b", "comp", "", ""),
        ("one", "b", "comp by size", "1.0", ""),
        ("two", "b", "comp", "2.0", ""),
    ]
    assert list(first.to_dict()["rows"][0]) == ["method", "comp", "comp by size"]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_a_csv_cell_is_no_formula(start):
    name = f"{start}cmd|' /C calc'!A0"
    table = Table(name, (name, name), ((name, (name,)),))
    quoted = f"'{name}".replace("\r", "\n")
    head, row = csv.reader(io.StringIO(table.csv(), newline=""))
    assert (head, row) == ([quoted] * 2, [quoted] * 2)
    assert next(csv.DictReader(io.StringIO(long_csv([table]), newline=""))) == {
        **dict.fromkeys(("table", "row", "column", "value"), quoted),
        "low": "",
        "high": "",
    }


def test_a_csv_cell_with_a_number_stays_one():
    numbers = ("-0.25", "+1", "-3e-05", "-.5")
    rows = tuple((number, (number, Cell(-0.25, -1.0, -1e-07))) for number in numbers)
    table = Table("-1", ("a", "b", "c"), rows)
    for number, line in zip(numbers, table.csv().splitlines()[1:], strict=True):
        assert line == f"{number},{number},-0.25,-1.0,-1e-07"
    assert "'" not in long_csv([table])
    for text in ("-1-2", "-1+cmd", "-", "-0x1", "-1\n=2"):
        assert Table("", (text,), ()).csv().lstrip('"').startswith("'")


def test_a_csv_cell_cannot_begin_another_row():
    table = Table("", ("a",), (("x\r=1+1", ()), ("x\r\n=1+1", ())))
    assert table.csv() == 'a\n"x\n=1+1"\n"x\n=1+1"\n'
