"""Reading data sets: formats, columns, splits, rows that cannot be used, samples."""

import gzip
import itertools
import json
import sys
from types import SimpleNamespace

import pytest

import alti
from alti.experiments.data import Example, Skipped, read, sample

ROWS = [
    {"text": "A clever blend, “really”.", "label": 1, "split": "train"},
    {"text": "dull", "label": 0, "split": "test"},
    {"text": "two\nlines", "label": 1, "split": "test"},
]


@pytest.fixture
def parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="no pyarrow here")
    written = pytest.importorskip("pyarrow.parquet")

    def write(rows, name="data.parquet"):
        written.write_table(arrow.Table.from_pylist(rows), tmp_path / name, row_group_size=2)
        return tmp_path / name

    return write


def file(folder, name, content: str):
    path = folder / name
    path.write_text(content, encoding="utf-8", newline="")
    return path


def lines(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


CSV = (
    'text,label,split\r\n"A clever blend, “really”.",1,train\r\n'
    'dull,0,test\r\n"two\nlines",1,test\r\n'
)
TSV = (
    "text\tlabel\tsplit\nA clever blend, “really”.\t1\ttrain\n"
    'dull\t0\ttest\n"two\nlines"\t1\ttest\n'
)
FILES = {
    "data.jsonl": lines(ROWS),
    "data.NDJSON": lines(ROWS),
    "data.json": json.dumps(ROWS, indent=1),
    "data.csv": CSV,
    "with_mark.csv": "\ufeff" + CSV,
    "data.tsv": TSV,
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_reads_the_same(tmp_path, name):
    expected = [Example(i, row["text"], row["label"]) for i, row in enumerate(ROWS)]
    path = file(tmp_path, name, FILES[name])
    assert list(read(path)) == expected
    assert list(read(str(path))) == expected
    assert list(read(path, split="test")) == [Example(0, "dull", 0), Example(1, "two\nlines", 1)]
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert list(read(packed)) == expected


def test_parquet_and_a_folder_of_it(parquet, tmp_path):
    path = parquet(ROWS, "b.parquet")
    assert list(read(path)) == [Example(i, row["text"], row["label"]) for i, row in enumerate(ROWS)]
    parquet([{"text": "first", "label": 0, "split": "test"}], "a.parquet")
    rows = list(read(tmp_path, split="test"))
    assert rows == [Example(0, "first", 0), Example(1, "dull", 0), Example(2, "two\nlines", 1)]
    parquet([{"text": "other"}], "c.parquet")
    with pytest.raises(alti.UsageError, match="differ in their columns: name one of the files"):
        read(tmp_path)


def test_a_text_file_is_a_text_per_line(tmp_path):
    path = file(tmp_path, "texts.txt", "one\r\n\n  three \u2028 still three\n")
    assert list(read(path)) == [
        Example(0, "one"),
        Skipped(1, "the text is empty"),
        Example(2, "three \u2028 still three"),
    ]


def test_rows_arrive_one_at_a_time(tmp_path):
    path = file(tmp_path, "data.jsonl", lines([{"text": str(i)} for i in range(100_000)]) + "\xff")
    path.write_bytes(path.read_bytes()[:-2] + b"\xff\xff")
    rows = read(path)
    assert [row.text for row in itertools.islice(rows, 3)] == ["0", "1", "2"]
    with pytest.raises(alti.LoadError, match=r"data\.jsonl could not be read: 'utf-8' codec"):
        list(rows)


def test_rows_that_cannot_be_used_are_told(tmp_path):
    rows = [
        '{"text": "good", "label": 1}',
        "{",
        "",
        "[1]",
        '{"label": 1}',
        '{"text": 5}',
        '{"text": " "}',
    ]
    rows += [
        '{"text": "\\ud83d"}',
        '{"text": "x", "label": 0.5}',
        '{"text": "x", "label": [1]}',
        '{"text": ["a", 1]}',
    ]
    rows += ['{"text": "last"}']
    assert list(read(file(tmp_path, "data.jsonl", "\n".join(rows)))) == [
        Example(0, "good", 1),
        Skipped(1, "line 2 is not JSON"),
        Skipped(2, "line 3 is not JSON"),
        Skipped(3, "line 4 is not an object"),
        Skipped(4, "the text is missing"),
        Skipped(5, "the text is not a string but 5"),
        Skipped(6, "the text is empty"),
        Skipped(7, "the text has a lone surrogate"),
        Skipped(8, "the label is neither a whole number nor a name but 0.5"),
        Skipped(9, "the label is neither a whole number nor a name but [1]"),
        Skipped(10, "the text is not a string but ['a', 1]"),
        Example(11, "last"),
    ]
    table = file(tmp_path, "data.csv", "text,label\na,1\nb\nc,1,2\n\nd,0\n")
    assert list(read(table)) == [
        Example(0, "a", 1),
        Skipped(1, "line 3 has 1 cells under a header of 2"),
        Skipped(2, "line 4 has 3 cells under a header of 2"),
        Skipped(3, "line 5 has 0 cells under a header of 2"),
        Example(4, "d", 0),
    ]
    entries = file(tmp_path, "data.json", '[{"text": "a"}, 7]')
    assert list(read(entries)) == [Example(0, "a"), Skipped(1, "entry 2 is not an object")]


def test_a_row_that_cannot_be_read_counts_in_every_split(tmp_path):
    path = file(tmp_path, "data.jsonl", "{\n" + lines(ROWS))
    assert [row.number for row in read(path, split="test")] == [0, 1, 2]
    assert isinstance(next(read(path, split="test")), Skipped)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("content,sentence,masked", "sentence"),
        ("review,content", "review"),
        ("masked,content", "content"),
    ],
)
def test_the_usual_columns(tmp_path, columns, text):
    path = file(tmp_path, "data.csv", f"{columns},labels\n{columns},good\n")
    assert list(read(path)) == [Example(0, text, "good")]
    assert list(read(path, text=columns.split(",")[0], label=text)) == [
        Example(0, columns.split(",")[0], text)
    ]


def test_labels_are_whole_numbers_or_names(tmp_path):
    labels = [1, "1", "-1", 2.0, True, "good", "1.5", None, ""]
    path = file(tmp_path, "data.jsonl", lines([{"text": "x", "label": label} for label in labels]))
    labels = [row.label for row in read(path)]
    assert labels == [1, 1, -1, 2, 1, "good", "1.5", None, None]
    assert all(type(label) in (int, str, type(None)) for label in labels)


def test_words_and_their_rationale(parquet):
    rows = [
        {"tokens": ["a", "fine", "film"], "rationale": [0.0, 1.0, 0.5]},
        {"tokens": ["a", "b c"], "rationale": [0.0, 1.0]},
        {"tokens": ["a"], "rationale": None},
        {"tokens": [], "rationale": []},
    ]
    path = parquet(rows)
    assert list(read(path, rationale="rationale")) == [
        Example(0, "a fine film", None, [0.0, 1.0, 0.5]),
        Skipped(1, "the rationale has 2 weights for a text of 3 words"),
        Example(2, "a"),
        Skipped(3, "the text is empty"),
    ]
    assert next(read(path)) == Example(0, "a fine film")


def test_a_rationale_is_a_list_of_numbers(tmp_path):
    path = file(
        tmp_path, "data.jsonl", lines([{"text": "a b", "why": [1, 0]}, {"text": "a", "why": "1"}])
    )
    assert list(read(path, rationale="why")) == [
        Example(0, "a b", None, [1.0, 0.0]),
        Skipped(1, "the rationale is not a list of numbers"),
    ]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"text": "txt"}, "has no column 'txt' for the text: its columns are text, label, split"),
        ({"label": "gold"}, "has no column 'gold' for the label: its columns are"),
        ({"rationale": "why"}, "has no column 'why' for the rationale: its columns are"),
        ({"split": "dev"}, "has no split 'dev': its splits are train, test"),
    ],
)
def test_a_name_that_is_not_there(tmp_path, columns, sentence):
    with pytest.raises(alti.UsageError, match=sentence):
        read(file(tmp_path, "data.jsonl", lines(ROWS)), **columns)


@pytest.mark.parametrize(
    ("name", "content", "kind", "sentence"),
    [
        ("a.csv", "x,y\n1,2\n", alti.UsageError, "name the column of the text, one of x, y"),
        ("a.txt", "", alti.LoadError, "has no rows"),
        ("a.csv", "", alti.LoadError, "has no rows"),
        (
            "a.json",
            '{"text": "x"}',
            alti.LoadError,
            "could not be read: its JSON is not a list of objects",
        ),
        ("a.json", "[", alti.LoadError, "could not be read: Expecting value"),
        ("a.csv.gz", "text\nx\n", alti.LoadError, "could not be read: Not a gzipped file"),
        ("a.csv", 'text\n"' + 200_000 * "x", alti.LoadError, "could not be read: field larger"),
        (
            "a.docx",
            "x",
            alti.UsageError,
            r"has no format that alti can read: give a \.parquet, \.jsonl",
        ),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path, name, content, kind, sentence):
    with pytest.raises(kind, match=sentence):
        read(file(tmp_path, name, content))


def test_a_place_that_is_not_there(tmp_path):
    with pytest.raises(
        alti.UsageError, match=r"a\.csv does not exist: give a file, a folder of files"
    ):
        read(tmp_path / "a.csv")
    with pytest.raises(alti.UsageError, match=r"data/a\.csv does not exist"):
        read("data/a.csv")
    with pytest.raises(alti.UsageError, match=r"holds no \.parquet, \.jsonl"):
        read(tmp_path)


def test_a_cell_keeps_its_line_ends(tmp_path):
    assert next(read(file(tmp_path, "a.csv", 'text\r\n"one\r\ntwo"\r\n'))).text == "one\r\ntwo"


def test_no_rows_have_no_split(tmp_path):
    with pytest.raises(alti.LoadError, match="has no rows"):
        read(file(tmp_path, "a.csv", "text,split\n"), split="test")


def test_no_split_column(tmp_path):
    with pytest.raises(alti.UsageError, match="has no column 'split': choose no split"):
        read(file(tmp_path, "a.txt", "x\n"), split="test")


def test_a_parquet_file_that_is_none(tmp_path):
    pytest.importorskip("pyarrow", reason="no pyarrow here")
    with pytest.raises(alti.LoadError, match=r"a\.parquet could not be read: Parquet magic bytes"):
        read(file(tmp_path, "a.parquet", "this is not a parquet file"))


@pytest.mark.parametrize(
    ("library", "source", "sentence"),
    [
        ("pyarrow.parquet", "a.parquet", r"needs the library pyarrow: pip install pyarrow"),
        ("datasets", "stanfordnlp/sst2", r"needs the library datasets: pip install 'alti\[hub\]'"),
    ],
)
def test_a_library_that_is_missing(tmp_path, monkeypatch, library, source, sentence):
    file(tmp_path, "a.parquet", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(alti.LoadError, match=sentence):
        read(source)


@pytest.fixture
def hub(monkeypatch):
    """The library datasets, with one data set; the calls it got."""
    calls = []

    def load_dataset(name, config, streaming, trust_remote_code):
        calls.append((name, config, streaming))
        if name != "glue":
            raise ConnectionError(f"Couldn't reach {name!r} on the Hub\nand pages of advice")
        return {
            "train": iter([{"sentence": "a", "label": 1}]),
            "test": iter([{"sentence": "b", "label": -1}]),
        }

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return calls


def test_a_data_set_of_the_hub(hub):
    assert list(read("glue:sst2")) == [Example(0, "b", -1)]
    assert list(read("glue", split="train")) == [Example(0, "a", 1)]
    assert hub == [("glue", "sst2", True), ("glue", None, True)]
    with pytest.raises(
        alti.UsageError, match="glue has no split 'dev': its splits are train, test"
    ):
        read("glue", split="dev")
    with pytest.raises(alti.LoadError, match=r"check the name and the network.*on the Hub\)$"):
        read("nobody/nothing")


def test_the_hub_may_break_off(monkeypatch):
    def rows():
        yield {"text": "a"}
        raise TimeoutError

    library = SimpleNamespace(load_dataset=lambda *_, **__: {"train": rows()})
    monkeypatch.setitem(sys.modules, "datasets", library)
    examples = read("some/data")
    assert next(examples) == Example(0, "a")
    with pytest.raises(alti.LoadError, match=r"could not be loaded from the hub.*\(TimeoutError\)"):
        next(examples)


def test_a_sample_is_seeded_ordered_and_without_replacement():
    rows = list(sample(range(1000), 50, seed=1))
    assert rows == sorted(set(rows))
    assert len(rows) == 50
    assert rows == list(sample(iter(range(1000)), 50, seed=1))
    assert rows != list(sample(range(1000), 50, seed=2))
    assert set(rows) < set(sample(range(1000), 60, seed=1))
    assert list(sample(range(3), 5)) == [0, 1, 2]
    with pytest.raises(alti.UsageError, match="a sample of 0 rows is not possible"):
        sample(range(3), 0)


def test_a_sample_is_fair():
    rows = [row for seed in range(2000) for row in sample(range(10), 3, seed)]
    assert all(500 < rows.count(row) < 700 for row in range(10))  # 600 ± 5 standard deviations


def test_a_sample_of_all_reads_nothing_ahead():
    rows = itertools.count()
    assert next(sample(rows, None)) == 0
    assert next(rows) == 1


def test_real_data(shared):
    pytest.importorskip("pyarrow", reason="no pyarrow here")
    if not (shared / "data").is_dir():
        pytest.skip(
            f"no data at {shared / 'data'}"
        )  # reference outputs can be there without the data sets
    rows = list(read(shared / "data" / "sst2" / "data.parquet", split="test"))
    assert [row.number for row in rows] == list(range(1821))
    assert {row.label for row in rows} == {0, 1}
    movies = read(
        shared / "data" / "eraser_movies" / "data.parquet", split="test", rationale="rationale"
    )
    assert all(isinstance(row, Example) and sum(row.rationale) > 0 for row in movies)
