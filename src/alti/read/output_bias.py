"""What some heads add to their logits though it is no parameter: a constant like a bias."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor
from transformers import PreTrainedModel

NAME = "final_logits_bias"  # of BART, Marian and their kin: a buffer


@contextmanager
def output_bias(model: PreTrainedModel) -> Iterator[list[Tensor]]:
    """In here the constant is a copy that gradients reach; afterwards it is the model's own."""
    own = model._buffers.get(NAME)
    if own is None:
        yield []
        return
    leaf = own.detach().clone().requires_grad_()
    model._buffers[NAME] = leaf
    try:
        yield [leaf]
    finally:
        model._buffers[NAME] = own
