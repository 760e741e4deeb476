"""What is proved about a model before it is explained; not again while the model, its hooks and its attention stay."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from alti.methods.logits import logits_of, require_finite
from alti.read.cuda_capture import capturing
from alti.read.exactness import require_same, untouched
from alti.read.linear_view import completeness, require_complete
from alti.read.modules import network
from alti.read.walk import check

TOKENS = 16  # of a text that a model's structure is proved on

_proved: WeakKeyDictionary[nn.Module, set[Hashable]] = WeakKeyDictionary()


def prove_once(model: nn.Module, what: Hashable, proof: Callable[[], None]) -> None:
    """Run a proof unless it was given before for this model as it is; not while CUDA records what is done."""
    if capturing():
        return
    known = _proved.setdefault(network(model), set())
    key = what, _state(model)
    if key not in known:
        proof()
        known.add(key)


def _state(model: nn.Module) -> Hashable:
    """What a proof depends on; hooks of the whole model are left out: they see what comes in and goes out."""
    inner = network(model)
    parts = (module for module in inner.modules() if module is not inner)
    hooks = tuple(
        number for part in parts for number in (*part._forward_hooks, *part._forward_pre_hooks)
    )
    return inner.config._attn_implementation, inner.dtype, hooks


def prove_structure(model: nn.Module, tensors: Mapping[str, Tensor], mask: Tensor) -> None:
    """Prove with `alti.check`, on the first tokens of a batch's first text, that a model is what its entry says."""
    base = network(model).base_model
    prove_once(model, "structure", lambda: _checked(base, first_text(tensors, mask, TOKENS)))


def _checked(base: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    check(base, tensors)


def prove_output(method: str, output: Any, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Prove that a method which read the model saw the output of the untouched one, for each kind of mask."""
    if output is None or capturing():
        return
    mask = tensors.get("attention_mask")
    kind = None if mask is None else (mask.dim(), mask.dtype, bool(mask.all()))
    prove_once(
        model,
        ("output", method, kind),
        lambda: require_same(output, untouched(model, tensors), model, tensors),
    )


def prove_complete(
    model: nn.Module, tensors: Mapping[str, Tensor], mask: Tensor, position: Tensor | None
) -> None:
    """Prove on a batch's first text that the linear view accounts for what the model predicts."""
    prove_once(
        model,
        "complete",
        lambda: require_complete(missing(model, first_text(tensors, mask), position), model),
    )


def missing(model: nn.Module, tensors: Mapping[str, Tensor], position: Tensor | None) -> Tensor:
    """How much of what a model predicts for one text its linear view cannot account for (`alti.linear`)."""
    position = None if position is None else position[:1]
    logits = logits_of(untouched(model, tensors), position)
    require_finite(logits)
    index = logits.argmax(-1)

    def predicted(output: Any) -> Tensor:
        return logits_of(output, position).gather(1, index[:, None])[:, 0]

    return completeness(model, tensors, predicted).max()


def first_text(
    tensors: Mapping[str, Tensor], mask: Tensor, tokens: int | None = None
) -> dict[str, Tensor]:
    """A batch of its first text alone, without padding: all of it, or its first tokens."""
    real = mask[0].nonzero()[:tokens, 0]
    return {
        name: tensor[:1, real] if tensor.shape == mask.shape else tensor[:1]
        for name, tensor in tensors.items()
    }
