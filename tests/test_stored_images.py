"""Explanations of images in files and as JSON: the same when they are read, or refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import alti
from alti import AltiError, ImageAttribution, LoadError, Prediction

Image = pytest.importorskip("PIL.Image", reason="needs pillow")


def image(mode="RGB", seed=0):
    drawn = torch.Generator().manual_seed(seed)
    size = (12, 8, 3) if mode == "RGB" else (12, 8)
    return Image.fromarray(torch.randint(0, 256, size, generator=drawn).byte().numpy())


@pytest.fixture(params=["float32", "float64", "bfloat16"])
def found(request):
    dtype = getattr(torch, request.param)
    drawn = torch.Generator().manual_seed(0)
    return ImageAttribution(
        image=image(),
        prediction=Prediction(label="cat", index=3, probability=0.75, of="logit"),
        scores=torch.randn(3, 2, generator=drawn).to(dtype),
        special=torch.randn(1, generator=drawn).to(dtype),
        layers=torch.rand(2, 7, 7, generator=drawn).to(dtype),
        method="linear",
        model="tiny",
        options={"of": "logit"},
        extra={"remainder": 0.5},
    )


def test_a_file_holds_everything(found, tmp_path):
    found.save(tmp_path / "a.alti")
    again = ImageAttribution.load(tmp_path / "a.alti")
    assert again == found
    assert hash(again) == hash(found)
    assert again.image.tobytes() == found.image.tobytes()
    assert again.scores.dtype == found.scores.dtype
    assert (again.label, again.probability, again.target) == ("cat", 0.75, 3)
    assert again.top(2) == found.top(2)


def test_json_holds_everything(found):
    assert ImageAttribution.from_dict(json.loads(found.to_json())) == found
    assert ImageAttribution.from_dict(found.to_dict(checksum=True)) == found
    plain = replace(found, image=image("L"), layers=None)
    assert ImageAttribution.from_dict(json.loads(plain.to_json(indent=1))) == plain
    np.testing.assert_array_equal(np.asarray(found), found.scores.float().numpy(), strict=False)


def test_whatever_is_another_is_not_the_same(found):
    changes = [
        {"image": image(seed=1)},
        {"image": image("L")},
        {"prediction": replace(found.prediction, label="dog")},
        {"scores": found.scores + 1},
        {"special": found.special + 1},
        {"layers": None},
        {"method": "alti"},
        {"model": "other"},
        {"options": {}},
        {"extra": {}},
    ]
    for change in changes:
        assert replace(found, **change) != found, change
    assert found != "cat"
    assert replace(found) == found


WRONG = {
    "no object": (lambda plain: [], "is not an object with named fields"),
    "a text's": (lambda plain: {**plain, "kind": "attribution"}, "holds 'attribution', no image"),
    "a newer format": (lambda plain: {**plain, "format": 9}, "has format 9, and this version"),
    "more": (lambda plain: {**plain, "what": 1}, "unknown fields what: update alti"),
    "less": (lambda plain: {k: v for k, v in plain.items() if k != "method"}, "lacks method"),
    "dtype": (lambda plain: {**plain, "dtype": "int8"}, "dtype 'int8' is none of float16"),
    "ragged": (lambda plain: {**plain, "scores": [[1.0], [1.0, 2.0]]}, "scores is not rows of"),
    "no scores": (lambda plain: {**plain, "scores": []}, "scores is not rows of finite numbers"),
    "nan": (lambda plain: {**plain, "special": [float("nan")]}, "special is not a list of finite"),
    "layers": (lambda plain: {**plain, "layers": [[[1.0]]]}, "layers is not a matrix .* per layer"),
    "image": (lambda plain: {**plain, "image": "AAAA"}, "image is not a PNG in base 64"),
    "no image": (lambda plain: {**plain, "image": 3}, "image is not a PNG in base 64"),
    "a chance": (
        lambda plain: {**plain, "prediction": {**plain["prediction"], "probability": 2.0}},
        "probability is not a number from 0 to 1",
    ),
    "options": (lambda plain: {**plain, "options": [1]}, "options is not an object"),
    "extra": (lambda plain: {**plain, "extra": {"a": "b"}}, "extra is not an object of finite"),
    "a change": (
        lambda plain: {**plain, "method": "alti"},
        "does not match its checksum: it was changed or damaged",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_right_is_refused(found, case):
    change, message = WRONG[case]
    with pytest.raises(LoadError, match=message):
        ImageAttribution.from_dict(change(found.to_dict(checksum=True)))


def test_files_that_cannot_be_right(found, tmp_path):
    file = tmp_path / "a.alti"
    found.save(file)
    with pytest.raises(LoadError, match=r"holds an image: read it with alti\.ImageAttribution"):
        alti.Attribution.load(file)
    with pytest.raises(LoadError, match=r"holds an image: read it with alti\.ImageAttribution"):
        alti.Attributions.from_dict(found.to_dict())
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # one pixel
    with pytest.raises(LoadError, match=r"a\.alti: .* does not match its checksum"):
        ImageAttribution.load(file)
    file.write_bytes(content[:50])
    with pytest.raises(LoadError, match="is not a file written by ImageAttribution"):
        ImageAttribution.load(file)
    file.write_bytes(content)
    save_file(load_file(file), file)  # without its texts
    with pytest.raises(LoadError, match="is not a file written by ImageAttribution"):
        ImageAttribution.load(file)


def test_numbers_that_are_not_finite_are_not_stored(found, tmp_path):
    wrong = replace(found, scores=found.scores * float("nan"))
    with pytest.raises(AltiError, match="cannot be stored: its scores is not rows of finite num"):
        wrong.save(tmp_path / "a.alti")
    with pytest.raises(AltiError, match="cannot be stored"):
        wrong.to_json()
    assert not (tmp_path / "a.alti").exists()
