"""Images: a small ViT that is trained on scikit-learn's digits here, its patches as tokens."""

import dataclasses
import json
import re
from types import SimpleNamespace

import pytest
import torch
import transformers

import alti
from alti import UsageError
from alti.model.image_attribution import ImageAttribution
from alti.model.images import Patches
from alti.model.model import Model
from alti.read.linear_view import linear_view
from test_untouched import assert_untouched, snapshot

import tiny

pytest.importorskip("PIL")
sklearn = pytest.importorskip("sklearn")

CLASSIFIER = "AutoModelForImageClassification"


def picture_of(digit):
    """A digit as an image; all that is drawn is in the middle."""
    from PIL import Image

    return Image.fromarray((digit * 255).round().byte().numpy())


@pytest.fixture(scope="session")
def digits():
    """Digits of 8 × 8 pixels, in a frame that nothing is ever drawn in: 12 × 12."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32) / 16
    return torch.nn.functional.pad(images, (2, 2, 2, 2)), torch.tensor(data.target)


@pytest.fixture(scope="session")
def model(digits):
    """Right about nine of ten digits, after a few seconds."""
    torch.manual_seed(0)
    config = {"image_size": 12, "patch_size": 2, "num_channels": 1, "num_labels": 10}
    config |= {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64}
    vit = tiny.build("vit", CLASSIFIER, dtype=torch.float32, **config)
    vit.init_weights()
    for module in vit.modules():
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.normal_(module.weight, std=0.1)
    vit.train()
    images, labels = digits
    pixels = (images[:, None] - 0.5) / 0.5
    optimiser = torch.optim.AdamW(vit.parameters(), lr=3e-3)
    for _ in range(6):
        for batch in torch.randperm(1500).split(50):
            loss = torch.nn.functional.cross_entropy(vit(pixels[batch]).logits, labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    vit.eval().requires_grad_(False)
    right = (vit(pixels[1500:]).logits.argmax(-1) == labels[1500:]).float().mean()
    assert float(right) > 0.8
    return Model(vit, None, name="digits")


@pytest.fixture(scope="session")
def picture(digits, model):
    """A digit that the model is right about."""
    images, labels = digits
    pixels = (images[1500:, None] - 0.5) / 0.5
    chances = model.model(pixels).logits.softmax(-1).gather(1, labels[1500:, None])[:, 0]
    return picture_of(images[1500 + int(chances.argmax())])


def pixels_of(picture):
    import numpy as np

    array = np.asarray(picture.convert("L"), dtype=np.float32) / 255
    return torch.tensor((array - 0.5) / 0.5)[None, None]


def test_maps_are_those_of_the_blocks(model, picture):
    found = model.explain(picture)
    assert isinstance(found, ImageAttribution)
    assert found.scores.shape == (6, 6)
    batch = {"pixel_values": pixels_of(picture)}
    logits = model.model(**batch).logits[0]
    assert found.target == int(logits.argmax())
    assert found.probability == pytest.approx(float(logits.softmax(-1).max()), rel=1e-5)
    relevance = torch.eye(37)
    for block in alti.trace(model.model, batch):
        relevance = alti.contributions(block)[0] @ relevance
    torch.testing.assert_close(found.scores.flatten(), relevance[0, 1:], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.special, relevance[0, :1], rtol=1e-4, atol=1e-5)
    assert found.layers.shape == (2, 37, 37)


def test_linear_effects_of_patches(model, picture):
    found = model.explain(picture, method="linear", target=3)
    view = linear_view(model.model, {"pixel_values": pixels_of(picture)})
    logits = view.output.logits[0]
    value = logits[3] - logits[[i for i in range(10) if i != 3]].mean()
    (slope,) = torch.autograd.grad(value, view.start)
    expected = (slope * view.start).sum(-1)[0].detach()
    torch.testing.assert_close(found.scores.flatten(), expected[1:], rtol=1e-3, atol=1e-4)
    assert (found.target, found.label) == (3, "LABEL_3")


def test_occlusion_masks_one_patch_after_the_other(model, picture):
    found = model.explain(picture, method="occlusion")
    pixels = pixels_of(picture)
    before = model.model(pixels).logits.softmax(-1)[0, found.target]
    for row, column in ((2, 3), (0, 0)):
        masked = pixels.clone()
        masked[..., 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = 0
        fall = before - model.model(masked).logits.softmax(-1)[0, found.target]
        assert float(found.scores[row, column]) == pytest.approx(float(fall), abs=1e-6)


@pytest.mark.parametrize("method", ["absence", "dimming", "consensus", "gradient", "norms"])
def test_every_kind_of_method(model, picture, method):
    before = snapshot(model.model, {"pixel_values": pixels_of(picture)})
    found = model.explain(picture, method=method, layers=False)
    assert found.scores.isfinite().all()
    assert_untouched(model.model, *before)


def test_what_a_digit_rests_on_is_where_it_is_drawn(model, picture, digits):
    """The frame is the same in every image: it cannot speak for one digit."""
    found = model.explain(picture, method="consensus")
    inner = found.scores[1:5, 1:5].abs().mean()
    frame = (found.scores.abs().sum() - found.scores[1:5, 1:5].abs().sum()) / 20
    assert inner > 2 * frame
    assert found.box(2, 2, 10, 10) == pytest.approx(float(found.scores[1:5, 1:5].sum()), rel=1e-5)


def test_masked_patches_measure_a_method(model, picture):
    from alti.metrics import comprehensiveness

    values = {}
    for method in ("consensus", "random"):
        found = model.explain(picture, method=method)
        asked = model.questions(picture, found.target)
        scores = [0.0] * sum(asked.keep) + found.scores.flatten().tolist()
        values[method] = comprehensiveness(
            asked, ids=asked.ids, keep=asked.keep, scores=scores, mask_id=asked.mask_id
        )
    assert asked([asked.ids])[0] == pytest.approx(found.probability, rel=1e-5)
    blank = model.model(torch.zeros(1, 1, 12, 12)).logits.softmax(-1)[0, found.target]
    all_masked = [0] + [asked.mask_id] * 36
    assert asked([all_masked])[0] == pytest.approx(float(blank), rel=1e-4)
    assert values["consensus"] > values["random"]


def test_groups_of_patches(model, picture):
    found = model.explain(picture, method="linear")
    squares = found.grouped(2)
    assert squares.scores.shape == (3, 3)
    torch.testing.assert_close(squares.scores[1, 2], found.scores[2:4, 4:6].sum())
    assert found.grouped(4).scores.shape == (2, 2)
    torch.testing.assert_close(
        model.explain(picture, method="linear", groups=2).scores, squares.scores
    )
    best, score = found.top(1)[0]
    assert score == pytest.approx(float(found.scores.max()))
    assert float(found.scores[best]) == pytest.approx(score)
    with pytest.raises(UsageError, match="size = 0 makes no groups of 6 × 6 patches"):
        found.grouped(0)


def test_many_images(model, digits, picture):
    pictures = [picture, *map(picture_of, digits[0][:3])]
    found = list(model.explain_all(pictures, method="linear", target=[1, 2, 3, 4], layers=True))
    assert [one.target for one in found] == [1, 2, 3, 4]
    assert found[2] == model.explain(pictures[2], method="linear", target=3)
    said = model.predict(pictures)
    assert [one.index for one in said] == [model.explain(one).target for one in pictures]
    assert said[0].probability == pytest.approx(model.explain(picture).probability)
    with pytest.raises(UsageError, match=r"images\[1\]: image is int: give a PIL image"):
        list(model.explain_all([picture, 3]))


@pytest.mark.parametrize(
    "asked",
    [{"positions": "all"}, {"position": 0}, {"text_pair": "a"}, {"total": True}, {"answer": "a"}],
    ids=lambda asked: next(iter(asked)),
)
def test_what_goes_with_texts_is_refused(model, picture, asked):
    why = f"{next(iter(asked))} goes with a text, and this model reads images: leave it out"
    with pytest.raises(UsageError, match=why):
        model.explain(picture, **asked)


def test_a_pipeline_that_reads_images(picture):
    size = {"height": 12, "width": 12}
    processor = transformers.ViTImageProcessor(size=size)
    vit = tiny.build("vit", CLASSIFIER, dtype=torch.float32)
    pipeline = transformers.pipeline("image-classification", vit, image_processor=processor)
    image = picture.convert("RGB")
    found = alti.explain(pipeline, image, method="norms")
    assert found == alti.explain(vit, processor, image, method="norms")
    assert found.probability == pytest.approx(pipeline(image)[0]["score"], rel=1e-4)
    assert alti.load(pipeline).explain(image, method="norms") == found


def test_a_line_in_a_list_and_a_table(model, picture):
    found = model.explain(picture, method="linear")
    (row, column), score = found.top(1)[0]
    line = repr([found])
    assert line.startswith(f"[<ImageAttribution 6 × 6 patches: {found.label} (p = 0.")
    assert f"· linear · digits: ({row}, {column}) {score:.3g}, " in line
    assert "\n" not in line
    shown = []
    found._repr_pretty_(SimpleNamespace(text=shown.append, stack=[1]), False)
    found._repr_pretty_(SimpleNamespace(text=shown.append, stack=[1, 2]), False)
    assert shown == [str(found), repr(found)]
    pytest.importorskip("pandas")
    table = found.to_dataframe()
    assert list(table.columns) == ["row", "column", "score"]
    assert (len(table), table.attrs["label"]) == (36, found.label)
    best = table.loc[table["score"].idxmax()]
    assert (best["row"], best["column"], best["score"]) == (row, column, pytest.approx(score))


def test_the_views(model, picture, tmp_path):
    found = model.explain(picture, method="linear")
    picture_over = found.overlay(width=120)
    assert picture_over.size == (120, 120)
    row, column = found.top(1)[0][0]
    red, _, blue = picture_over.getpixel((column * 20 + 10, row * 20 + 10))
    assert blue > red
    lowest = int(found.scores.argmin())
    red, _, blue = picture_over.getpixel((lowest % 6 * 20 + 10, lowest // 6 * 20 + 10))
    assert red > blue
    page = found.to_html()
    assert f"logits of {found.label}" in page
    assert f"logits of {found.label}" in str(found)
    assert page.count("data:image/png;base64,") == 2
    assert "<script" not in page
    assert len(str(found).splitlines()) == 9
    assert json.loads(json.dumps(found.to_dict()))["scores"][0][0] == float(found.scores[0, 0])
    pytest.importorskip("matplotlib")
    found.plot().savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000


def test_on_the_command_line(model, picture, run, tmp_path):
    model.model.save_pretrained(tmp_path / "vit")
    picture.save(tmp_path / "digit.png")
    code, out, err = run("explain", tmp_path / "digit.png", "-m", tmp_path / "vit")
    assert code == 0, err
    assert re.match(r"LABEL_\d \(p = 0\.\d+\) · alti · vit\n", out)
    files = ("--html", tmp_path / "page.html", "--plot", tmp_path / "p.png")
    code, out, err = run("explain", tmp_path / "digit.png", "-m", tmp_path / "vit", *files)
    assert code == 0, err
    assert "data:image/png" in (tmp_path / "page.html").read_text()
    assert (tmp_path / "p.png").is_file()
    code, out, err = run("explain", tmp_path / "digit.png", "-m", tmp_path / "vit", "--json")
    loaded = alti.load(tmp_path / "vit").explain(tmp_path / "digit.png", layers=False)
    assert alti.ImageAttribution.from_dict(json.loads(out)) == loaded
    code, out, err = run("explain", "no such file", "-m", tmp_path / "vit")
    assert (code, "does not exist: this model reads images" in err) == (2, True)
    assert run("check", tmp_path / "vit")[0] == 0
    code, _, err = run("explain", "-", "-m", tmp_path / "vit", stdin="digit.png\n")
    assert (code, err) == (2, "alti: vit reads images: explain them one by one, not line by line\n")


def test_what_cannot_be_read_as_an_image(model, picture, tmp_path):
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(UsageError, match="could not be read as an image"):
        model.explain(tmp_path / "text.png")
    with pytest.raises(UsageError, match="image is int: give a PIL image"):
        model.explain(3)
    with pytest.raises(UsageError, match="leave_one_out takes tokens out, and an image without"):
        model.explain(picture, method="leave_one_out")


def kin(name):
    """A tiny model of another family that sees, with random weights."""
    kind = getattr(transformers, f"{name}Config")
    config = kind(**tiny.CONFIGS[kind.model_type])
    torch.manual_seed(0)
    vit = getattr(transformers, f"{name}ForImageClassification")(config).eval().double()
    torch.nn.init.normal_(vit.classifier.weight)
    return vit


@pytest.fixture
def noise():
    from PIL import Image

    pixels = torch.randint(0, 256, (12, 12, 3), generator=torch.Generator().manual_seed(0))
    return Image.fromarray(pixels.byte().numpy())


def test_a_second_special_token(noise):
    found = Model(kin("DeiT"), None).explain(noise)
    assert (found.scores.shape, len(found.special)) == ((3, 3), 2)


def test_a_head_that_reads_the_first_token_and_all_patches(noise):
    """DINOv2: half of a score is of [CLS], half of the mean of the patches."""
    model = Model(kin("Dinov2"), None)
    found = model.explain(noise)
    rolled = torch.eye(10, dtype=torch.float64)
    for layer in found.layers:
        rolled = layer @ rolled
    expected = rolled[0] / 2 + rolled[1:].mean(0) / 2
    torch.testing.assert_close(torch.cat([found.special, found.scores.flatten()]), expected)
    assert float(expected.sum()) == pytest.approx(1)
    lean = model.explain(noise, layers=False)
    torch.testing.assert_close(lean.scores, found.scores)
    linear = model.explain(noise, method="linear")
    place, _ = model.show(noise)
    view = linear_view(model.model, {"pixel_values": place.pixels})
    logits = view.output.logits[0]
    value = 2 * (logits[linear.target] - logits.mean())  # of two classes: against the other
    (slope,) = torch.autograd.grad(value, view.start)
    expected = (slope * view.start).sum(-1)[0].detach()
    torch.testing.assert_close(linear.scores.flatten(), expected[1:], atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("name", "added", "read"),
    [
        ("Dinov2WithRegisters", 3, lambda rows: (rows[0] + rows[3:].mean(0)) / 2),
        ("Beit", 1, lambda rows: rows[1:].mean(0)),
        ("IJepa", 0, lambda rows: rows.mean(0)),
        ("ViTMSN", 1, lambda rows: rows[0]),
    ],
)
def test_what_the_heads_of_kin_read(noise, name, added, read):
    found = Model(kin(name), None).explain(noise)
    assert len(found.special) == added
    rolled = torch.eye(added + 9, dtype=torch.float64)
    for layer in found.layers:
        rolled = layer @ rolled
    torch.testing.assert_close(torch.cat([found.special, found.scores.flatten()]), read(rolled))


@pytest.mark.parametrize("method", ["absence", "dimming", "consensus", "gradient", "occlusion"])
def test_other_methods_of_a_head_that_reads_all(noise, method):
    found = Model(kin("Dinov2"), None).explain(noise, method=method)
    assert found.scores.shape == (3, 3)
    assert float(found.scores.abs().sum()) > 0


def test_a_wrong_position_is_noticed(noise, monkeypatch):
    entry = alti.FAMILIES["dinov2"]
    monkeypatch.setitem(alti.FAMILIES, "dinov2", dataclasses.replace(entry, pool="first"))
    with pytest.raises(alti.DecompositionError, match="the head reads position 0, 1, 2"):
        Model(kin("Dinov2"), None).explain(noise)


def test_a_processor_says_how_to_read(picture, tmp_path):
    processor = transformers.ViTImageProcessor(
        size={"height": 12, "width": 12}, image_mean=[0.2, 0.3, 0.4], image_std=[0.5, 0.6, 0.7]
    )
    vit = tiny.build("vit", CLASSIFIER, dtype=torch.float32)
    image = picture.convert("RGB")
    found = Model(vit, processor).explain(image)
    pixels = processor(images=image, return_tensors="pt")["pixel_values"]
    assert found.target == int(vit(pixels).logits.argmax())
    assert max(abs(a - b) for a, b in zip(found.image.tobytes(), image.tobytes(), strict=True)) <= 1
    vit.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    torch.testing.assert_close(
        alti.load(tmp_path, device="cpu").explain(image).scores, found.scores
    )


def test_masked_patches_are_the_mean_colour(model, picture):
    place, _ = model.show(picture)
    assert isinstance(place, Patches)
    ids = torch.tensor([[0, *range(1, 37)], [0, place.mask_id, *range(2, 37)]])
    pictures = place.base_inputs({"input_ids": ids})["pixel_values"]
    torch.testing.assert_close(pictures[:1], pixels_of(picture))
    assert bool((pictures[1, :, :2, :2] == 0).all())
    torch.testing.assert_close(pictures[1, :, 2:], pictures[0, :, 2:])


@pytest.mark.parametrize(("method", "of"), [("consensus", "relative"), ("linear", "logit")])
def test_what_scores_are_of(model, picture, method, of):
    assert model.explain(picture, method=method).prediction.of == of
