"""The blocks of a long text from the last to the first, each made again from what its layer read.

Scores of a few predictions are rows of a product of maps, which grows from the last layer down. So
of a forward pass only the inputs of the layers are kept, T · D numbers each; a layer runs again, as
far as its attention, when its block is asked for.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from alti._progress import expect, step
from alti.family import Site, Stack
from alti.read.attention_hook import paused, reporting_to
from alti.read.block import Block
from alti.read.by_layer import LayerCall
from alti.read.modules import call, network
from alti.read.walk import COMPARED, BlockReader, Through


@contextmanager
def walking_back(
    model: nn.Module, inputs: Mapping[str, Any], *, through: Through = None, half: bool = False
) -> Iterator[tuple[Any, Iterator[Block]]]:
    """Run the model once: its output, and its blocks by rows, the last one first.

    Blocks are compared with what the model computed, as in `walk`, when they are asked for: in
    here, once each. Layers must follow each other (`alti.read.long.can_be_long`).
    """
    inner = network(model)
    reader = _Backwards(inner, inputs, through, half)
    expect(2 * (reader.layers_in_all + reader.sites_in_all))  # of the pass, then of the blocks
    with torch.no_grad(), reader.listening():
        output = call(inner, inputs)
        reader.finish()
        with paused():
            yield output, reader.blocks()
    reader.verdicts.conclude()


class _LayerRead(Exception):
    """What comes after the block of a layer need not be computed again."""


class _Backwards(BlockReader):
    """Keeps what the layers read, and makes their blocks again."""

    def __init__(
        self, model: PreTrainedModel, inputs: Mapping[str, Any], through: Through, half: bool
    ) -> None:
        super().__init__(model, inputs, self._keep, through, COMPARED, by_rows=True, half=half)
        ((stack, self.layers),) = self.stacks
        self.sites = len(stack.sites)
        self.kept: list[LayerCall] = []
        self.made: list[Block] | None = None  # of the layer that runs again

    def blocks(self) -> Iterator[Block]:
        while self.kept:
            step()
            self.count = (len(self.kept) - 1) * self.sites
            yield from self._blocks_of(self.kept.pop())

    def _blocks_of(self, call: LayerCall) -> list[Block]:
        self.made = []
        with reporting_to(self), suppress(_LayerRead):
            call.again(call.x)
        return self.made[::-1]

    def hooks(self) -> Iterator[RemovableHandle]:
        for layer in self.layers:
            yield self.at_call(layer, self._starts)
        yield from super().hooks()

    def _starts(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.made is None:
            step()
            self.kept.append(LayerCall.of(layer, args, kwargs))

    def _complete(self, stack: Stack, site: Site, read: Any, output: Any = None) -> None:
        if self.made is not None:
            super()._complete(stack, site, read, output)
            return
        self.claim_attention(site)
        self.calls.clear()
        self.count += 1

    def _carry(self, site: Site, output: Any) -> None:
        if self.made is not None:
            super()._carry(site, output)

    def _keep(self, block: Block, _: Tensor) -> None:
        assert self.made is not None
        self.made.append(block)
        if len(self.made) == self.sites and self.layer is not None and not _is_hooked(self.layer):
            raise _LayerRead


def _is_hooked(layer: nn.Module) -> bool:
    """Whether accelerate brings weights and takes them away, which it does at the end of a call."""
    return any("_hf_hook" in vars(module) for module in layer.modules())
