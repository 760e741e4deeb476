"""A set of texts on the page: opened in the browser, predicted and explained row by row."""

import base64
import io
import json
import re
from urllib.parse import quote
from xml.etree import ElementTree

import pyarrow
import pytest
from pyarrow import parquet

import alti

from pages import BROWSED, READY, file, high_contrast, offered, printed, show

pytestmark = BROWSED
SVG = "{http://www.w3.org/2000/svg}"
QUICK = (  # `make test` runs these; the others are slow
    "test_a_set_is_predicted_row_by_row_and_errors_come_first",
    "test_a_file_is_dropped",
    "test_parquet_is_opened",
    "test_views_are_kept_saved_and_opened",
)
ROWS = [
    ("A gorgeous, witty film.", "positive"),
    ("A tedious mess.", "positive"),  # wrong: the model says negative
    ("It is a dull film.", "negative"),
    ("Superb acting.", "negative"),  # wrong
]
CSV = "text,label\n" + "\n".join(f'"{text}",{label}' for text, label in ROWS)
OPEN = """(async () => {{
  const bytes = Uint8Array.from(atob('{data}'), letter => letter.charCodeAt(0));
  const files = new DataTransfer();
  files.items.add(new File([bytes], '{name}'));
  const field = document.querySelector('#set-file');
  field.files = files.files;
  field.dispatchEvent(new Event('change'));
}})()"""
LINES = "[...document.querySelectorAll('#set-rows tr')]"
TEXTS = f"{LINES}.map(row => row.querySelector('button').textContent)"
IDLE = "document.querySelector('#set-predict').textContent === 'Predict all rows'"


def give(page, content, name="set.csv"):
    """Open a file as a user does, and wait for the table or the sentence."""
    content = content.encode() if isinstance(content, str) else content
    page.run("document.querySelector('#set-error').textContent = ''")
    page.run(OPEN.format(data=base64.b64encode(content).decode(), name=name))
    page.wait(
        "!document.querySelector('#set-body').hidden"
        " || !!document.querySelector('#set-error').textContent"
        " || !!document.querySelector('#view-list li')"
    )


def sentence(page):
    return page.run("document.querySelector('#set-error').textContent")


@pytest.fixture
def opened(blank):
    show(blank, text="A film.", methods="alti")
    give(blank, CSV)
    return blank


def test_a_set_is_predicted_row_by_row_and_errors_come_first(opened):
    assert opened.run(TEXTS) == [text for text, _ in ROWS]
    opened.click("#set-predict")
    opened.wait(f"{IDLE} && document.querySelectorAll('#set-rows .wrong').length === 2")
    model = alti.load(device="cpu")
    found = {text: one for (text, _), one in zip(ROWS, model.predict(t for t, _ in ROWS))}  # noqa: B905
    cells = opened.run(f"{LINES}.map(row => [...row.cells].map(cell => cell.textContent))")
    for text, label, prediction, confidence, verdict in cells:
        assert prediction == found[text].label
        assert confidence == f"{100 * found[text].probability:.1f} %"
        assert verdict == ("right" if prediction == label else "wrong")
    assert [row[4] for row in cells] == ["wrong", "wrong", "right", "right"]
    wrong = [row for row in cells if row[4] == "wrong"]
    assert float(wrong[0][3][:-2]) >= float(wrong[1][3][:-2])  # the surest error first
    assert "4 of 4 rows, 4 predicted by minilm-l6-sst2, 2 wrong" in opened.run(
        "document.querySelector('#set-by').textContent"
    )


def test_a_row_that_cannot_be_predicted_holds_up_no_other(blank):
    show(blank, text="A film.", methods="alti")
    give(blank, "text,label\n" + "long " * 600 + ",negative\n" + CSV.partition("\n")[2])
    blank.click("#set-predict")
    blank.wait(f"{IDLE} && document.querySelectorAll('#set-rows .right').length === 2")
    assert re.fullmatch(
        r"Not predicted: 1 of 5 rows\. Row 1: The text has \d+ tokens, .*", sentence(blank)
    )
    blank.problems.clear()  # the server said so
    failed = "document.querySelector('#set-rows [data-row=\"0\"]').cells[4]"
    assert blank.run(f"{failed}.textContent") == "not predicted"
    assert "tokens" in blank.run(f"{failed}.title")


def test_labels_that_the_model_has_not_are_no_errors(blank):
    show(blank, text="A film.", methods="alti")
    give(blank, "text,label\nA tedious mess.,bad\nSuperb acting.,1\nA dull film.,Positive\n")
    blank.click("#set-predict")
    blank.wait(f"{IDLE} && document.querySelectorAll('#set-rows .right').length === 1")
    verdicts = blank.run(
        f"{LINES}.map(row => [row.cells[1].textContent, row.cells[4].textContent])"
    )
    assert verdicts == [["Positive", "wrong"], ["bad", ""], ["1", "right"]]
    said = blank.run("document.querySelector('#set-by').textContent")
    assert (
        "minilm-l6-sst2 has the classes negative, positive: rows with other labels, such as bad"
        in said
    )


def test_next_previous_and_filter_by_keyboard_alone(opened):
    opened.run("document.querySelector('#set-next').focus()")
    opened.key("Enter")
    opened.wait(f"{READY} && document.querySelector('#text').value === {json.dumps(ROWS[0][0])}")
    opened.wait("document.querySelector('#set-rows tr.on [data-name=prediction]').textContent")
    assert opened.run("document.activeElement.id") == "set-next"
    for name, wanted in (("set-next", 2), ("set-previous", 0)):
        opened.run("document.querySelector('#set-order').value = 'file'")
        opened.run("document.querySelector('#set-order').dispatchEvent(new Event('change'))")
        opened.run(f"document.querySelector('#{name}').focus()")
        opened.key("Enter")
        opened.key("Enter")
        text = json.dumps(ROWS[wanted][0])
        opened.wait(f"{READY} && document.querySelector('#text').value === {text}")
    opened.run("document.querySelector('#set-find').focus()")
    opened.type("DULL")
    assert opened.run(TEXTS) == ["It is a dull film."]
    opened.run("document.querySelector('#set-rows button').focus()")
    opened.key("Enter")
    opened.wait(f"{READY} && document.querySelector('#text').value === 'It is a dull film.'")
    opened.wait("document.activeElement.closest('#set-rows tr')?.dataset.row === '2'")


@pytest.mark.parametrize("width", [390, 1400])
def test_the_explanation_of_a_row_is_in_sight(blank, width):
    show(blank, text="A film.", methods="alti")
    give(blank, "text\n" + "".join(f"Film {i} is dull.\n" for i in range(30)))
    blank.size(width, 844)
    blank.click("#set-rows tr:nth-child(3) button")
    for _ in range(20):
        blank.run("document.querySelector('#set-next').click()")
    blank.wait(f"{READY} && document.querySelector('#text').value === 'Film 22 is dull.'")
    edges = "(e => [e.top, e.bottom])(document.querySelector('{}').getBoundingClientRect())"
    row, box, rows, result = (
        blank.run(edges.format(each))
        for each in ("#set-rows tr.on", "#set-box", ".set thead", ".result")
    )
    assert rows[1] - 1 <= row[0] < row[1] <= box[1] + 1  # not behind the names of the columns
    assert row[1] < result[0] < 0.8 * 844


def test_a_column_that_is_taken_as_the_text_is_named(opened):
    said = "document.querySelector('#set-by').textContent"
    assert "column" not in opened.run(said)
    give(opened, "a,b\nA dull film.,1\nA clever film.,2", "unknown.csv")
    assert opened.run(TEXTS) == ["A dull film.", "A clever film."]
    assert opened.run(said).endswith("The column a was taken as the text: none is named text.")


def test_a_file_is_dropped(blank):
    show(blank, text="A film.", methods="alti")
    drop = """(() => {
      const files = new DataTransfer();
      files.items.add(new File(['text\\nA superb film.'], 'one.csv'));
      const about = { dataTransfer: files, bubbles: true, cancelable: true };
      return document.querySelector('#results').dispatchEvent(new DragEvent('drop', about));
    })()"""
    assert blank.run(drop) is False  # the browser does not leave the page for the file
    blank.wait(f"{LINES}.length === 1")
    assert blank.run("document.querySelector('#sets').open") is True


def test_everything_has_a_name(opened):
    unnamed = """[...document.querySelectorAll('#sets :is(button, input, select, progress)')]
      .filter(n => !(n.ariaLabel || n.textContent.trim() || n.labels?.length)).map(n => n.id)"""
    assert opened.run(unnamed) == []
    assert opened.run("document.querySelector('.set thead').textContent") == (
        "textlabelpredictionconfidenceverdict"
    )


@pytest.mark.parametrize(("width", "dark"), [(320, True), (1100, False)])
def test_it_fits(opened, width, dark):
    opened.size(width, 800, dark=dark)
    assert opened.run("document.documentElement.scrollWidth") <= width


def test_results_of_alti_are_opened(blank, tmp_path):
    show(blank, text="A film.", methods="alti")
    found = alti.load(device="cpu").explain(ROWS[1][0], layers=False)
    lines = f"{found.to_json()}\n{found.to_json()}\n"
    give(blank, lines, "results.jsonl")
    assert blank.run(TEXTS) == [ROWS[1][0]] * 2
    assert blank.run(f"{LINES}[0].cells[2].textContent") == found.label
    found.save(tmp_path / "one.alti")
    give(blank, (tmp_path / "one.alti").read_bytes(), "one.alti")
    blank.wait(f"{LINES}.length === 1")
    header = {"alti_bench": 1}
    bench = [
        {
            "text": i,
            "method": "alti",
            "gold": label,
            "target": 0,
            "probability": 0.7,
            "right": i > 1,
        }
        for i, (_, label) in enumerate(ROWS)
    ]
    give(blank, "\n".join(map(json.dumps, [header, *bench])), "bench.jsonl")
    blank.wait(f"{LINES}.length === 4")
    assert blank.run(TEXTS)[0] == "row 1"
    assert blank.run("document.querySelector('#set-hint').hidden") is False
    give(blank, "text\n" + "\n".join(f'"{text}"' for text, _ in ROWS))
    blank.wait("document.querySelector('#set-hint').hidden")
    assert set(blank.run(TEXTS)[:2]) == {ROWS[0][0], ROWS[1][0]}  # what was wrong there


def test_a_folder_of_results_meets_its_labels(opened):
    """The labels of a data file stay with its texts when their predictions are opened."""
    listed = [
        {"id": str(i), "text": text, "pair": None, "label": "negative", "probability": 0.9,
         "target": 0, "tokens": [], "offsets": [], "scores": [], "error": None}
        for i, (text, _) in enumerate(ROWS)
    ]  # fmt: skip
    give(opened, "\n".join(map(json.dumps, listed)), "results.jsonl")
    opened.wait(f"{LINES}[0].cells[4].textContent === 'wrong'")
    verdicts = opened.run(f"{LINES}.map(row => row.cells[4].textContent)")
    assert verdicts == ["wrong", "wrong", "right", "right"]


def parquet_file(**columns):
    content = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), content)
    return content.getvalue()


def test_parquet_is_opened(blank):
    show(blank, text="A film.", methods="alti")
    texts, labels = zip(*ROWS, strict=True)
    more = {"score": [0.5, None, float("nan"), 1.0], "left_out": [[1], [], [2], [3]]}
    give(blank, parquet_file(text=texts, label=labels, **more), "set.parquet")
    assert blank.run(TEXTS) == list(texts)
    assert blank.run(f"{LINES}.map(row => row.cells[1].textContent)") == list(labels)


DROP_FOLDER = """(() => {{
  const files = {files}.map(([name, data]) =>
    new File([Uint8Array.from(atob(data), letter => letter.charCodeAt(0))], name));
  const entries = files.map(file =>
    ({{ name: file.name, isFile: true, file: done => done(file) }}));
  const rest = [entries, []];
  const folder = {{ name: 'results', isDirectory: true,
    createReader: () => ({{ readEntries: done => done(rest.shift()) }}) }};
  const event = new Event('drop', {{ bubbles: true, cancelable: true }});
  const items = [{{ webkitGetAsEntry: () => folder }}];
  event.dataTransfer = {{ types: ['Files'], files: [], items }};
  document.body.dispatchEvent(event);
}})()"""


def drop_folder(page, files):
    told = [[name, base64.b64encode(content).decode()] for name, content in files.items()]
    page.run("document.querySelector('#set-error').textContent = ''")
    page.run(DROP_FOLDER.format(files=json.dumps(told)))


def test_a_folder_of_explain_out_is_dropped(blank, tmp_path):
    """Every shard of it, in the order of their names, with what was predicted."""
    show(blank, text="A film.", methods="alti")
    texts = [f"{text} {i}" for i in range(3) for text, _ in ROWS]
    folder = tmp_path / "results"
    found = alti.engines.explain(texts, folder, method="attention", shard_rows=8, device="cpu")
    parts = sorted(folder.iterdir(), reverse=True)
    assert sum(part.suffix == ".parquet" for part in parts) == 2
    drop_folder(blank, {part.name: part.read_bytes() for part in parts})
    blank.wait("document.querySelector('#set-by').textContent.includes('of 12 rows')")
    said = blank.run("document.querySelector('#set-by').textContent")
    assert said == "part-000000.parquet and 1 more: 12 of 12 rows, 12 predicted by the file."
    assert blank.run(TEXTS) == texts
    labels = [found[i].label for i in range(12)]
    assert blank.run(f"{LINES}.map(row => row.cells[2].textContent)") == labels


BAD_FOLDERS = {
    "no Parquet": ({"a.csv": b"text\na"}, "results holds no Parquet file: drop a folder that"),
    "one is broken": (
        {"a.parquet": parquet_file(text=["a"]), "b.parquet": b"PAR1" + bytes(99)},
        "b.parquet: The file is damaged",
    ),
    "one is text": (
        {"a.parquet": parquet_file(text=["a"]), "b.parquet": b"\0<script>"},
        "b.parquet is not text in UTF-8",
    ),
    "too many rows": (
        {f"{i}.parquet": parquet_file(text=["a"] * 9_000) for i in range(3)},
        "These files have over 20000 rows: open a part of them.",
    ),
    "too many files": (
        {f"{i}.parquet": b"PAR1" for i in range(201)},
        "These are 201 files, and this page opens up to 200 together.",
    ),
    "views": (
        {
            "a.parquet": parquet_file(text=["a"]),
            "b.parquet": b'{"kind": "alti-views", "views": []}',
        },
        "Open a set of views by itself.",
    ),
}


@pytest.mark.parametrize("name", BAD_FOLDERS)
def test_a_hostile_folder_gets_one_sentence(blank, name):
    files, wanted = BAD_FOLDERS[name]
    show(blank, text="A film.", methods="alti")
    drop_folder(blank, files)
    blank.wait("!!document.querySelector('#set-error').textContent", 60)
    assert sentence(blank).startswith(wanted)
    assert blank.run("document.querySelector('#set-body').hidden") is True
    blank.problems.clear()  # what the server refused


HOSTILE = {
    "part.parquet": (b"PAR1" + bytes(100), "part.parquet: The file is damaged, or no Parquet"),
    "many.parquet": (
        parquet_file(text=["a"] * 20_001),
        "The file has over 20000 rows: open a part",
    ),
    "bomb.parquet": (parquet_file(text=["a" * 10**6] * 200), "The texts of the file have over 64"),
    "lists.parquet": (parquet_file(text=[[1, 2]]), "lists.parquet has no column of texts"),
    "large.parquet": (
        b"PAR1" + bytes(10_000_000),
        "large.parquet has 10.0 MB, and this page reads up",
    ),
    "large.csv": (b"text\n" + b"a" * 10_000_000, "large.csv has 10.0 MB, and this page reads up"),
    "binary.csv": (bytes(range(256)) * 20, "binary.csv is not text in UTF-8"),
    "numbers.jsonl": ('{"text": 3}\n', "text of row 1 is not a text"),
    "list.json": ("[1, 2, 3]", "list.json holds something else than objects"),
    "broken.jsonl": ('{"text": "a"}\n{"text": \n', "line 2 is not a JSON object"),
    "none.csv": ("", "none.csv has no rows"),
    "quote.csv": ('text\n"open', "quote.csv has a quote that does not end"),
    "views.json": ('{"kind": "alti-views", "views": [{"title": 1}]}', "is damaged"),
    "deep.json": ("[" * 100_000, "deep.json"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_gets_one_sentence(blank, name):
    content, wanted = HOSTILE[name]
    show(blank, text="A film.", methods="alti")
    give(blank, content, name)
    assert wanted in sentence(blank)
    assert len(sentence(blank)) < 300
    assert blank.run("document.querySelector('#set-body').hidden") is True
    refused = [problem for problem in blank.problems if "(Bad Request)" in problem]
    assert blank.problems == refused
    assert len(refused) == (wanted.startswith(("part", "The")))  # by the server
    blank.problems.clear()


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_nothing_of_a_file_is_run(blank, kind):
    show(blank, text="A film.", methods="alti")
    attack = "<img src=x onerror='document.body.dataset.owned = 1'><script>1</script>"
    formula = '=HYPERLINK("http://x","y")'
    record = {"text": attack, "label": formula, "__proto__": {"polluted": 1}}
    rows = [record, {"text": "+1+1", "label": "-3", "__proto__": {"polluted": 1}}]
    if kind == "jsonl":
        give(blank, "\n".join(map(json.dumps, rows)), "x.jsonl")
    else:
        columns = {name: [row[name] for row in rows] for name in ("text", "label")}
        polluting = {"__proto__": ["x", "x"], "constructor": [1, 2]}
        give(blank, parquet_file(**columns, **polluting), "x.parquet")
    assert attack[:40] in blank.run(TEXTS)[0]
    assert blank.run("document.querySelectorAll('#sets img, #sets script').length") == 0
    blank.click("#set-rows tr:nth-child(1) button")
    blank.wait(READY)
    assert blank.run("document.body.dataset.owned ?? null") is None
    assert blank.run("({}).polluted ?? null") is None
    saved = blank.run(
        """(async () => {
      const { csv } = await import('/files.js');
      return csv([['=1+1', '+x', '-2', '-x', '@y', '\\tz', 'a,b', 'say "hi"', 0.5, null]]);
    })()"""
    )
    assert saved == '\'=1+1,\'+x,-2,\'-x,\'@y,\'\tz,"a,b","say ""hi""",0.5,\r\n'
    blank.problems.clear()  # the text itself is shown; an image that is none may be asked for


def test_views_are_kept_saved_and_opened(blank):
    show(blank, text="A superb film.", methods="alti", layer=2)
    blank.run("document.querySelector('#sets').open = true")
    blank.click("#view-keep")
    blank.wait("document.querySelectorAll('#view-list li').length === 1")
    title = blank.run("document.querySelector('#view-list li button').textContent")
    assert title.startswith("A superb film. · alti · minilm-l6-sst2, layer 3")
    stored = {"kind": "alti-views", "version": 1, "views": []}
    stored["views"] = [{"title": "<b>dull</b>", "address": "#text=A+dull+film.&methods=alti"}]
    give(blank, json.dumps(stored), "alti-views.json")
    blank.wait("document.querySelectorAll('#view-list li').length === 2")
    assert blank.run("document.querySelectorAll('#view-list b').length") == 0
    blank.click("#view-list li:nth-child(2) button")
    blank.wait(f"{READY} && document.querySelector('#text').value === 'A dull film.'")
    blank.click("#view-list li:nth-child(1) button")
    blank.wait("document.querySelector('#layer-number').textContent === '3 of 6'")


def test_a_saved_set_of_views_is_opened_again(blank):
    """A text and an answer, each named by what it shows; the file as it was saved."""
    prompt = {"form": "text", "text": "The plot is", "answer": " It is better"}
    blank.open(f"{blank.server}/#model=tiny-chat&ask=answer&prompt={quote(json.dumps(prompt))}")
    blank.wait("!!document.querySelector('#prompted')")
    blank.run("document.querySelector('#sets').open = true")
    blank.click("#view-keep")
    blank.run("location.hash = '#text=A+superb+film.&methods=alti'")
    blank.wait(f"{READY} && document.querySelector('#text').value === 'A superb film.'")
    blank.click("#view-keep")
    kept = "[...document.querySelectorAll('#view-list .plain')].map(view => view.textContent)"
    titles = blank.run(kept)
    assert titles[0] == "The plot is → It is better · absence · tiny-chat"
    assert titles[1].startswith("A superb film. · alti · minilm-l6-sst2")
    save = "URL.createObjectURL = blob => { window.saved = blob.text(); return '#' }"
    blank.run(f"{save}; document.querySelector('#view-save').click()")
    content = blank.run("window.saved")
    show(blank, text="A film.", methods="alti")
    give(blank, content, "alti-views.json")
    assert blank.run(kept) == titles
    blank.click("#view-list li:nth-child(1) button")
    blank.wait("!!document.querySelector('#prompted')")
    answer = "[...document.querySelectorAll('.written [role=option]')].map(t => t.textContent)"
    assert "".join(blank.run(answer)) == " It is better"


def test_more_views_than_a_set_holds(blank):
    show(blank, text="A film.", methods="alti")
    views = [{"title": f"view {i}", "address": "#text=A+film."} for i in range(150)]
    for _ in range(2):
        give(blank, json.dumps({"kind": "alti-views", "views": views}), "alti-views.json")
    said = "document.querySelector('#toast').textContent"
    blank.wait(f"{said} === '50 of 150 views opened: a set holds up to 200.'")
    assert blank.run("document.querySelectorAll('#view-list li').length") == 200


def test_what_is_predicted_belongs_to_the_model(opened):
    opened.click("#set-rows button")
    opened.wait("!!document.querySelector('#set-rows tr.on [data-name=prediction]').textContent")
    other = "(s => { s.selectedIndex = 1; s.dispatchEvent(new Event('change')) })"
    opened.run(f"{other}(document.querySelector('#model'))")
    opened.wait(READY)
    rows = f"{LINES}.filter(row => row.cells[2].textContent).length"
    assert opened.run(rows) <= 1  # that of the row which is shown, by the model that is


def test_a_set_leaves_as_a_picture_that_says_who_predicted(opened):
    opened.click("#set-predict")
    opened.wait(f"{IDLE} && document.querySelectorAll('#set-rows .wrong').length === 2")
    said = opened.run("document.querySelector('#set-by').textContent")
    assert said == "set.csv: 4 of 4 rows, 4 predicted by minilm-l6-sst2, 2 wrong."
    assert "sets" in offered(opened)
    opened.click("#view-keep")
    opened.wait("!!document.querySelector('.kept .round')")
    svg = file(opened, "vector", "sets").decode()
    for text in (*(text for text, _ in ROWS), "wrong", "confidence", "minilm-l6-sst2"):
        assert text in svg
    for control in ("Predict all rows", "Open a file", "Keep this view", "×"):
        assert control not in svg
    opened.size(320, 800)
    root = ElementTree.fromstring(file(opened, "vector", "sets"))
    lines = {"".join(node.itertext()): float(node.get("y")) for node in root.iter(f"{SVG}text")}
    assert lines["label"] == lines["prediction"] == lines["confidence"]  # a table, with its head
    assert lines["label"] < lines["A tedious mess."]
    for width in (320, 1280):
        opened.size(width, 800)
        drawn = ElementTree.fromstring(file(opened, "vector", "sets"))
        assert float(drawn.get("width")) < 1300
    assert b"/FontFile" in printed(opened, "sets")


def test_without_rows_there_is_nothing_to_draw(blank):
    show(blank, text="A film.", methods="alti")
    blank.run("document.querySelector('#sets').open = true")
    assert "sets" not in offered(blank)


def test_a_set_in_high_contrast_and_from_right_to_left(blank):
    show(blank, text="A film.", methods="alti")
    give(blank, "text,label\nفيلم ذكي جدا,positive\nA dull film.,negative\n")
    sides = f"{LINES}.map(row => getComputedStyle(row.querySelector('button')).direction)"
    assert blank.run(sides) == ["rtl", "ltr"]
    high_contrast(blank)
    blank.click("#set-rows tr:last-child button")
    blank.wait("!!document.querySelector('#set-rows tr.on')")
    outline = "getComputedStyle(document.querySelector('#set-rows {}')).outlineStyle"
    assert blank.run(outline.format("tr.on")) == "solid"
    assert blank.run(outline.format("tr:not(.on)")) == "none"
    high_contrast(blank, on=False)
