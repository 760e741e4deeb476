"""An image becomes patches, as tokens of a text would be: numbers, of which some can be masked."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from alti._errors import AltiError, LoadError, UnsupportedModelError, UsageError
from alti.methods import Inputs, Target
from alti.model.question import Question
from alti.model.wrapped import Wrapped
from alti.read.exactness import untouched
from alti.read.modules import call, device_of

HALF = (0.5,)  # mean and deviation of a channel, where no processor says others


class Patches(Wrapped):
    """A vision model that reads numbers of patches; those that are masked are the mean colour."""

    def __init__(self, inner: PreTrainedModel) -> None:
        super().__init__(inner)
        self.pixels = torch.empty(0)  # [1, C, H, W]  the image, as the model takes it
        self.grid = (0, 0)  # rows and columns of patches
        self.added = 0  # tokens before the first patch
        self.mask_id = 0

    def show(self, pixels: Tensor) -> None:
        """The image that is read from now on."""
        size = self.config.patch_size
        size = (size, size) if isinstance(size, int) else tuple(size)
        self.pixels = pixels
        self.grid = pixels.shape[2] // size[0], pixels.shape[3] // size[1]
        hidden = untouched(self.inner, {"pixel_values": pixels, "output_hidden_states": True})
        count = self.grid[0] * self.grid[1]
        self.added = hidden.hidden_states[0].shape[1] - count
        if self.added < 0:
            raise UnsupportedModelError(
                f"{self.config.model_type} makes fewer tokens than the image has patches "
                f"({count}): alti cannot say which is which"
            )
        self.mask_id = self.added + count

    def base_inputs(self, tensors: Any) -> dict[str, Tensor]:
        """What the model inside takes."""
        return {"pixel_values": self._pictures(tensors["input_ids"])}

    def forward(self, **inputs: Any) -> SequenceClassifierOutput:
        rest = {name: x for name, x in inputs.items() if name.startswith(("output_", "return_"))}
        output = call(self.inner, {**self.base_inputs(inputs), **rest})
        return SequenceClassifierOutput(logits=output.logits, hidden_states=output.hidden_states)

    def _pictures(self, ids: Tensor) -> Tensor:
        """The image once for each row of ids [B, T], with masked patches: [B, C, H, W]."""
        rows, columns = self.grid
        gone = torch.zeros(len(ids), rows * columns, dtype=torch.bool, device=ids.device)
        masked = ids[:, self.added :] == self.mask_id
        gone[:, : masked.shape[1]] = masked
        height, width = self.pixels.shape[2] // rows, self.pixels.shape[3] // columns
        area = gone.reshape(-1, 1, rows, columns)
        area = area.repeat_interleave(height, 2).repeat_interleave(width, 3)
        shown = self.pixels[..., : rows * height, : columns * width]
        return torch.where(area, torch.zeros_like(shown), shown)


@dataclass(frozen=True, slots=True)
class Pixels:
    """Makes tensors of images, as a processor says, and images of tensors."""

    config: Any
    processor: Any = None

    def read(self, image: Any) -> Tensor:
        """An image, or the path of one, as the model takes it: [1, C, H, W]."""
        picture = _opened(image)
        if self.processor is not None:
            pixels: Tensor = self.processor(images=picture, return_tensors="pt")["pixel_values"]
            return pixels
        size = self.config.image_size
        height, width = (size, size) if isinstance(size, int) else size
        picture = picture.convert("L" if self.config.num_channels == 1 else "RGB")
        array = np.asarray(picture.resize((width, height)), dtype=np.float32) / 255
        array = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
        return torch.from_numpy((array - HALF[0]) / HALF[0]).float()[None]

    def picture(self, pixels: Tensor) -> Any:
        """The image that the model saw, for the eye."""
        from PIL import Image

        mean, deviation = (
            torch.tensor(getattr(self.processor, name, None) or HALF)[:, None, None]
            for name in ("image_mean", "image_std")
        )
        shown = (pixels[0].float().cpu() * deviation + mean).clamp(0, 1)
        array = (shown.numpy() * 255).round().astype(np.uint8).transpose(1, 2, 0)
        return Image.fromarray(array[..., 0] if array.shape[2] == 1 else array)


def _opened(image: Any) -> Any:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise LoadError("images need pillow: pip install 'alti[images]'") from error
    if isinstance(image, Image.Image):
        return image.convert("RGB")
    if not isinstance(image, str | Path):
        raise UsageError(
            f"image is {type(image).__name__}: give a PIL image or the path of one to this model"
        )
    try:
        with Image.open(image) as opened:
            return opened.convert("RGB")
    except FileNotFoundError:
        raise UsageError(f"image {str(image)!r} does not exist: this model reads images") from None
    except (UnidentifiedImageError, OSError) as error:
        raise UsageError(f"{str(image)!r} could not be read as an image: {error}") from error


class Questions:
    """An image as ids that a metric can mask, and what the model says to them."""

    def __init__(self, model: Patches, index: int) -> None:
        self.model = model
        self.pixels = model.pixels
        self.index = index
        self.mask_id = model.mask_id
        self.ids = list(range(model.mask_id))
        self.keep = [i < model.added for i in self.ids]

    def __call__(self, questions: Sequence[list[int]]) -> list[float]:
        """The probability of the class, with patches masked."""
        self.model.show(self.pixels)
        ids = torch.tensor(list(questions), device=self.pixels.device)
        with torch.no_grad():
            logits = untouched(self.model, {"input_ids": ids}).logits
        chances: list[float] = logits.double().softmax(-1)[:, self.index].tolist()
        return chances


def require_image_alone(question: Question, **more: Any) -> None:
    """Raise for what was given beside an image and would not be read."""
    parts = {each.name: getattr(question, each.name) for each in fields(question)}
    del parts["text"]  # which is the image
    given = [name for name, value in parts.items() if value is not None]
    unasked = (None, False, "auto")
    given += [name for name, value in more.items() if not any(value is x for x in unasked)]
    if given:
        raise UsageError(f"{given[0]} goes with a text, and this model reads images: leave it out")


def each_image(
    explain: Callable[..., Any], images: Iterable[tuple[Any, dict[str, Any]]], asked: dict[str, Any]
) -> Iterator[Any]:
    """The result of each image with what was given for it; an error names its number."""
    for number, (image, own) in enumerate(images):
        try:
            found = explain(image, **own, **asked)
        except AltiError as error:
            raise type(error)(f"images[{number}]: {error}") from error
        yield found


def read_by(pool: str, model: Patches) -> Target:
    """What a classifier predicts, with the final positions that it reads."""
    device = device_of(model)
    if pool == "first":
        return Target(position=torch.zeros(1, 1, dtype=torch.long, device=device))
    if pool == "mean":
        return Target()
    count = model.grid[0] * model.grid[1]
    weights = torch.zeros(model.mask_id, device=device)
    weights[model.added :] = 1 / count
    if pool == "first_and_mean":  # the two stand side by side in what the head reads
        weights /= 2
        weights[0] = 0.5
    return Target(weights=weights)


def inputs_of(model: Patches) -> Inputs:
    """The image that is shown, as what methods take."""
    device = device_of(model)
    ids = torch.arange(model.mask_id, device=device)[None]
    tensors = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return Inputs(tensors, ids < model.added, mask_id=model.mask_id)
