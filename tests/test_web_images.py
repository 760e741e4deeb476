"""Images on the page: they are shown in the colours of the library, and nothing else gets in."""

import base64
import io
import json
import urllib.error
import urllib.request
from xml.etree import ElementTree

import pytest
import torch
from PIL import Image

import alti
from alti.web import images

import tiny
from browser import Browser
from pages import BROWSED, file, offered, printed, text
from serving import running
from speed import slow

READY = "!document.body.hasAttribute('aria-busy')"
SVG = "{http://www.w3.org/2000/svg}"
LABELS = {0: "cat", 1: "dog", 2: "<b>neither</b>"}
pytestmark = slow  # a server of its own


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeing") / "tiny-vit"
    model = tiny.build("vit", "AutoModelForImageClassification", dtype=torch.float32, num_labels=3)
    model.config.id2label = LABELS
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def address(folder):
    with running(folder) as address:
        yield address


@pytest.fixture(scope="module")
def picture():
    pixels = torch.randint(0, 256, (12, 12, 3), generator=torch.Generator().manual_seed(0))
    return Image.fromarray(pixels.byte().numpy())


def encoded(picture, format="PNG"):
    out = io.BytesIO()
    picture.save(out, format=format)
    return base64.b64encode(out.getvalue()).decode()


def post(address, kind="picture", **question):
    body = json.dumps({"model": "tiny-vit", **question}).encode()
    request = urllib.request.Request(
        f"{address}/api/{kind}", body, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["error"]


def test_scores_are_the_librarys(address, folder, picture):
    status, view = post(
        address, image=encoded(picture), methods=["alti", "occlusion"], target="dog"
    )
    assert status == 200
    model = alti.load(str(folder))
    for row in view["rows"]:
        found = model.explain(picture, method=row["method"], target="dog")
        torch.testing.assert_close(torch.tensor(row["scores"]), found.scores)
        assert row["left"][0][1] == pytest.approx(float(found.special.sum()), abs=1e-6)
    assert (view["label"], view["probability"]) == ("dog", pytest.approx(found.probability))
    assert sum(each["probability"] for each in view["classes"]) == pytest.approx(1)
    assert [row["unit"] for row in view["rows"]] == ["shares of 1", "probability of dog"]


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("not base64!", "no image that can be read"),
        (base64.b64encode(b"<svg onload=alert(1)>").decode(), "no image that can be read"),
        (base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 40).decode(), "no image that can be read"),
        (7, "expected a string"),
        (None, "image is missing"),
    ],
)
def test_what_is_no_image_gets_one_sentence(address, image, said):
    status, error = post(address, image=image)
    assert status == 400
    assert said in error


def test_a_bomb_is_not_unpacked(monkeypatch, picture):
    monkeypatch.setattr(images, "PIXELS", 100)
    with pytest.raises(alti.UsageError, match="over 100 pixels: make it smaller"):
        images.opened(encoded(picture))


def test_a_large_file_is_refused(address):
    status, error = post(address, image="A" * (13 * 1024 * 1024))
    assert status == 413
    assert "longer than" in error


@pytest.mark.parametrize("kind", ["view", "explain", "predict", "export"])
def test_a_text_is_no_path_for_a_model_of_images(address, kind):
    status, error = post(address, kind, text=__file__)
    assert status == 400
    assert "reads images" in error


def test_a_model_of_texts_takes_no_image(address, picture):
    status, error = post(address, model="minilm-l6-sst2", image=encoded(picture))
    assert status == 400
    assert "reads texts" in error


@pytest.fixture
def page(address, tmp_path):
    browser = Browser(tmp_path / "browser")
    browser.open(f"{address}/#model=tiny-vit&methods=alti,linear")
    browser.wait("!document.querySelector('#picturing').hidden")
    yield browser
    browser.close()


def given(page, picture):
    data = encoded(picture)
    page.run(
        "(() => { const bytes = Uint8Array.from(atob('" + data + "'), c => c.charCodeAt(0));"
        "const files = new DataTransfer();"
        "files.items.add(new File([bytes], 'noise.png', {type: 'image/png'}));"
        "const field = document.querySelector('#image-file'); field.files = files.files;"
        "field.dispatchEvent(new Event('change')) })()"
    )
    page.wait("document.querySelectorAll('#pictured figure').length === 3")
    page.wait(READY)


class TestPage:
    pytestmark = BROWSED

    def test_an_image_is_shown_with_the_colours_of_its_patches(self, page, picture, folder):
        assert page.run("getComputedStyle(document.querySelector('.texts')).display") == "none"
        given(page, picture)
        found = alti.load(str(folder)).explain(picture, method="linear")
        colours = page.run(
            "[...document.querySelectorAll('#pictured figure:nth-child(3) rect')]"
            ".map(rect => [rect.getAttribute('fill'), +rect.getAttribute('fill-opacity')])"
        )
        largest = float(found.scores.abs().max())
        for (fill, opacity), score in zip(colours, found.scores.flatten().tolist(), strict=True):
            assert opacity == pytest.approx(0.75 * abs(score) / largest, abs=1e-5)
            assert (fill == colours[0][0]) == (score * float(found.scores[0, 0]) > 0)
        assert found.label in text(page, "#pictured-title")
        assert "tiny-vit" in text(page, "#pictured-title")
        assert "logits" in text(page, "#pictured figure:nth-child(3)")
        assert "shares of 1" in text(page, "#pictured figure:nth-child(2)")
        assert not page.problems

    def test_what_a_screen_reader_reads(self, page, picture):
        given(page, picture)
        names = page.run(
            "[...document.querySelectorAll('#pictured [role=img]')]"
            ".map(each => each.getAttribute('aria-label'))"
        )
        assert all("patches; the strongest are row" in name for name in names)

    def test_another_class_and_then_another_model(self, page, picture):
        given(page, picture)
        page.run(
            "(e => { e.value = '2'; e.dispatchEvent(new Event('change')) })"
            "(document.querySelector('#class'))"
        )
        page.wait("document.querySelector('#pictured-title').textContent.startsWith('<b>neither')")
        page.run(
            "(e => { e.value = 'minilm-l6-sst2'; e.dispatchEvent(new Event('change')) })"
            "(document.querySelector('#model'))"
        )
        page.wait(f"{READY} && document.querySelectorAll('.result').length > 0")
        assert page.run("document.querySelector('#pictured').hidden")
        assert page.run("getComputedStyle(document.querySelector('.texts')).display") != "none"

    def test_an_image_leaves_as_a_picture(self, page, picture):
        given(page, picture)
        assert offered(page) == ["pictured"]
        root = ElementTree.fromstring(file(page, "vector", "pictured"))
        said = " ".join("".join(node.itertext()) for node in root.iter(f"{SVG}text"))
        for name in ("tiny-vit", "alti", "linear", "shares of 1", "logits"):
            assert name in said
        assert len(list(root.iter(f"{SVG}image"))) == 3
        assert b"/FontFile" in printed(page, "pictured")
        page.run("document.querySelector('#keep').open = true")
        shown = "[...document.querySelectorAll('#keep .kind b')].filter(b => b.offsetParent)"
        names = page.run(f"{shown}.map(b => b.textContent)")
        assert names == ["Picture of", "Image", "SVG", "PDF"]  # the others are of texts
