"""Reads what a language model would have said after each layer, and puts it into results."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from alti.methods import Inputs, Target
from alti.model.attributions import Attributions
from alti.model.head import token_label
from alti.model.lens import NAMES, Lens
from alti.read.lens import layer_logits

TOP = 5  # tokens that are kept of each layer


def with_lens(
    results: list[Attributions],
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase | None,
    inputs: Inputs,
    target: Target,
) -> list[Attributions]:
    """The results of a batch with a lens in every prediction."""
    assert target.position is not None  # language models predict at a position
    readings = [
        Reading(tokenizer, [one.index or 0 for one in result.predictions], []) for result in results
    ]
    for logits in layer_logits(model, inputs.asking(target), target.position):
        for reading, rows in zip(readings, logits, strict=True):
            reading.add(rows[: len(reading.index)])
    return [
        replace(result, predictions=reading.put_into(result.predictions))
        for result, reading in zip(results, readings, strict=True)
    ]


@dataclass(slots=True)
class Reading:
    """Collects, layer by layer, what is said at K positions of one text."""

    tokenizer: PreTrainedTokenizerBase | None
    index: Sequence[int]  # [K]  the outputs that are explained
    layers: list[list[dict[str, Any]]]  # [L, K]

    def add(self, logits: Tensor) -> None:
        """The logits [K, C] after the next layer."""
        pairs = zip(logits, self.index, strict=True)  # row by row: a vocabulary is large
        self.layers.append([self._layer(row.double().softmax(-1), own) for row, own in pairs])

    def _layer(self, chances: Tensor, own: int) -> dict[str, Any]:
        top = chances.topk(min(TOP, len(chances)))
        ids = top.indices.tolist()
        return {
            "tokens": tuple(token_label(self.tokenizer, token) for token in ids),
            "ids": tuple(ids),
            "probabilities": tuple(top.values.tolist()),
            "own": float(chances[own]),
            "ranks": int((chances > chances[own]).sum()) + 1,
        }

    def put_into(self, predictions: Sequence[Any]) -> tuple[Any, ...]:
        """The predictions [K], each with what was said at its position."""
        return tuple(
            replace(one, lens=Lens(**{name: self._column(name, k) for name in NAMES}))
            for k, one in enumerate(predictions)
        )

    def _column(self, name: str, k: int) -> tuple[Any, ...]:
        return tuple(layer[k][name] for layer in self.layers)
