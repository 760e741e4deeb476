"""What a computation costs: the texts that go through a network, forwards and backwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from alti.model.model import Model
from alti.read.modules import network


@contextmanager
def counting(model: Model) -> Iterator[dict[str, int]]:
    """Counts a model's forward passes, the texts in them, and those that gradients went through.

    A gradient is counted where it enters a network: at its logits.
    """
    count = {"passes": 0, "texts": 0, "backward": 0}

    def before_pass(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        count["passes"] += 1
        given = kwargs.get("input_ids", kwargs.get("inputs_embeds"))
        count["texts"] += len(args[0] if given is None else given)

    def after_pass(module: Any, args: Any, output: Any) -> None:
        logits = getattr(output, "logits", None)
        if logits is not None and logits.requires_grad:
            logits.register_hook(went_back)

    def went_back(gradient: Tensor) -> None:
        count["backward"] += len(gradient)

    inner = network(model.model)
    handles = [
        inner.register_forward_pre_hook(before_pass, with_kwargs=True),
        inner.register_forward_hook(after_pass),
    ]
    try:
        yield count
    finally:
        for handle in handles:
            handle.remove()
