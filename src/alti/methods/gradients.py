"""Gradients of the prediction with respect to the vectors that stand for the text."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from alti._errors import LoadError, UsageError
from alti.methods.logits import kind_of, logits_of, probabilities
from alti.methods.registry import Inputs, Scores, Target, method
from alti.read.linear_view import Point, entering
from alti.read.modules import evaluating, network

Aggregate = Literal["l2", "mean_abs", "sum"]
Of = Literal["probability", "logit"]
Baseline = Literal["auto", "mask", "zero", "pad"]

AT_ONCE = 64  # texts that integrated gradients puts through the model together
MAGNIFIED = (
    2.0**10
)  # on a path of half precision, where p (1 − p) is everything from 1/4 to nearly 0


@method
def gradient(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    aggregate: Literal["l2", "mean_abs"] = "l2",  # a sum over all axes is 0 below a LayerNorm
    at: Point = "word",
    of: Of = "probability",
) -> Scores:
    """Gradient: how fast the prediction changes with each token's vector."""
    _, slopes, output = _slopes(model, inputs, target, at, of)
    return Scores(aggregated(slopes, aggregate, inputs), output=output, vectors=slopes)


@method
def input_x_gradient(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    aggregate: Aggregate = "l2",
    at: Point = "word",
    of: Of = "probability",
) -> Scores:
    """Gradient × input: the gradient times the token's vector."""
    vectors, slopes, output = _slopes(model, inputs, target, at, of)
    products = vectors * slopes
    return Scores(aggregated(products, aggregate, inputs), output=output, vectors=products)


@method(many_passes=True)
def integrated_gradients(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    aggregate: Aggregate = "l2",
    at: Point = "word",
    of: Of = "probability",
    steps: int = 100,
    baseline: Baseline = "auto",
) -> Scores:
    """Integrated gradients: gradients averaged on the way from a text of [MASK] (or zeros, or padding), times the way.

    Special tokens are the same at both ends and get 0. "auto" is "mask" where the tokenizer has one, "zero" elsewhere.
    The result's `gap` is by how much the scores miss the change of the prediction (for the signed sum).
    """
    try:
        from captum.attr import IntegratedGradients
    except ImportError as error:
        raise LoadError(
            "integrated_gradients needs captum, which is not installed: pip install captum"
        ) from error
    if steps < 1:
        raise UsageError(f"steps = {steps} is not a number of steps: give 1 or more")
    vectors, _, output = _slopes(model, inputs, target, at, of)
    index = target.chosen(logits_of(output, target.position))
    larger = MAGNIFIED if vectors.dtype.itemsize < 4 else 1.0
    at_once = (
        1 if network(model).config.pad_token_id is None else AT_ONCE
    )  # then some classifiers take one at a time

    def value(
        given: Tensor,
        index: Tensor,
        position: Tensor | None,
        against: Tensor | None,
        *tensors: Tensor,
    ) -> Tensor:
        with evaluating(model), entering(model, at, lambda _: given):
            found = network(model)(
                **dict(zip(inputs.tensors, tensors, strict=True)), return_dict=True
            )
        return larger * _value(model, found, Target(index, position, against), of)

    with torch.enable_grad():
        scores, gap = IntegratedGradients(value, multiply_by_inputs=True).attribute(
            vectors,
            _start(model, inputs, vectors, at, baseline),
            additional_forward_args=(
                index,
                target.position,
                target.against,
                *inputs.tensors.values(),
            ),
            n_steps=steps,
            internal_batch_size=max(at_once, len(vectors)),
            return_convergence_delta=True,
        )
    scores, extra = scores.detach() / larger, {"gap": gap.detach() / larger}
    return Scores(aggregated(scores, aggregate, inputs), output=output, vectors=scores, extra=extra)


def _slopes(
    model: nn.Module, inputs: Inputs, target: Target, at: Point, of: Of
) -> tuple[Tensor, Tensor, Any]:
    """The vectors [B, T, D] where the text enters, the gradient there, and the model's output."""
    leaves: list[Tensor] = []

    def leaf(x: Tensor) -> Tensor:
        leaves.append(x.detach().requires_grad_())
        return leaves[-1]

    with torch.enable_grad(), evaluating(model), entering(model, at, leaf):
        output = network(model)(**inputs.tensors, return_dict=True)
        value = _value(model, output, target, of)
        larger = _larger(model, output, target) if of == "probability" else torch.ones_like(value)
    (slopes,) = torch.autograd.grad((larger * value).sum(), leaves)
    return leaves[0].detach(), slopes / larger[:, None, None], output


def _larger(model: nn.Module, output: Any, target: Target) -> Tensor:
    """Powers of two [B] that keep a gradient from vanishing in half precision: of a confident model it is p (1 − p)."""
    logits, config = logits_of(output, target.position).detach(), network(model).config
    if output.logits.dtype.itemsize >= 4 or kind_of(config, logits.shape[-1]) == "value":
        return torch.ones_like(logits[:, 0])
    chances = probabilities(logits, config)
    slopes = Target().of(chances * (1 - chances), target.chosen(logits))
    return slopes.clamp_min(2.0**-40).log2().neg().floor().exp2()


def _value(model: nn.Module, output: Any, target: Target, of: Of) -> Tensor:
    logits = logits_of(output, target.position)
    values = probabilities(logits, network(model).config) if of == "probability" else logits
    return target.of(values, target.chosen(logits))


def _start(
    model: nn.Module, inputs: Inputs, vectors: Tensor, at: Point, baseline: Baseline
) -> Tensor:
    """Where the path of integrated gradients begins; special tokens are as they are: [B, T, D]."""
    if baseline == "auto":
        baseline = "zero" if inputs.mask_id is None else "mask"
    if baseline == "zero":
        return torch.where(inputs.special[..., None], vectors, 0)
    fill = {"mask": inputs.mask_id, "pad": inputs.pad_id}[baseline]
    if fill is None:
        raise UsageError(
            "baseline = 'mask', but this tokenizer has no mask token: use baseline='zero' or 'pad'"
        )
    with torch.no_grad():
        filling = network(model).get_input_embeddings()(
            inputs.special.new_full((1,), fill, dtype=torch.long)
        )[0]
    found: list[Tensor] = []

    def swap(x: Tensor) -> Tensor:  # not the ids: some models read positions off them
        return torch.where(inputs.special[..., None], x, filling.to(x))

    def keep(x: Tensor) -> Tensor:
        found.append(x.detach())
        return x

    with (
        torch.no_grad(),
        evaluating(model),
        entering(model, "word", swap),
        entering(model, at, keep),
    ):
        network(model)(**inputs.tensors)
    return found[0]


def aggregated(x: Tensor, aggregate: Aggregate, inputs: Inputs) -> Tensor:
    """One number per token: [B, T, D] -> [B, T]."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    if aggregate == "l2":
        scores = torch.linalg.vector_norm(x, dim=-1)
    else:
        scores = x.abs().mean(-1) if aggregate == "mean_abs" else x.sum(-1)
    return torch.where(inputs.mask, scores, 0)
