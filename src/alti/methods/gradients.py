"""Gradients of the prediction with respect to the vectors that stand for the text."""

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from alti._errors import LoadError, UsageError
from alti.methods.logits import Of, explained, kind_of, probabilities, target_logits
from alti.methods.progress import at_once, report
from alti.methods.registry import method
from alti.methods.stacks import parts_of
from alti.methods.types import Inputs, Scores, Target
from alti.read.events import Point, entering, telling
from alti.read.modules import evaluating, network

Aggregate = Literal["l2", "mean_abs", "sum"]
Baseline = Literal["auto", "mask", "zero", "pad"]

AT_ONCE = 64  # texts that integrated gradients puts through the model together
MAGNIFIED = 2.0**10  # on a path of half precision, where p (1 − p) is all from 1/4 to nearly 0
SUMMED = {"aggregate": "sum"}  # only then a negative score speaks against a class


def by_token(vectors: Tensor, mask: Tensor, *, aggregate: Aggregate, **_: Any) -> Tensor:
    """One number per token: [B, K, T, D] -> [B, K, T]."""
    x = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    if aggregate == "l2":
        scores = torch.linalg.vector_norm(x, dim=-1)
    else:
        scores = x.abs().mean(-1) if aggregate == "mean_abs" else x.sum(-1)
    return torch.where(mask[:, None], scores, 0)


@method(class_specific=True, aggregate=by_token)
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
    tokens = by_token(slopes, inputs.mask, aggregate=aggregate)
    return Scores(tokens, output=output, vectors=slopes)


@method(class_specific=True, signed=SUMMED, aggregate=by_token)
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
    products = vectors[:, None] * slopes
    tokens = by_token(products, inputs.mask, aggregate=aggregate)
    return Scores(tokens, output=output, vectors=products)


@method(class_specific=True, signed=SUMMED, many_passes=True, aggregate=by_token, library="captum")
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
    """Integrated gradients: gradients averaged on the way from a text of [MASK], times the way.

    The way can start at zeros or padding too (`baseline`). Special tokens are the same at both
    ends and get 0. "auto" is "mask" where the tokenizer has
    one, "zero" elsewhere. The result's `gap` is by how much the scores miss the change of the
    prediction (for the signed sum).
    """
    if steps < 1:
        raise UsageError(f"steps = {steps} is not a number of steps: give 1 or more")
    vectors, _, output = _slopes(model, inputs, target, at, of)
    start = _start(model, inputs, vectors, at, baseline)
    index = target.chosen(target_logits(output, target))
    path = _Path(model, inputs, vectors, start, at, of, steps)
    parts = [path.integrated(one) for one in target.one_by_one(index)]
    scores, gaps = (torch.stack(each, 1) for each in zip(*parts, strict=True))
    tokens = by_token(scores, inputs.mask, aggregate=aggregate)
    return Scores(tokens, output=output, vectors=scores, extra={"gap": gaps})


class _Path:
    """The straight way from one set of vectors to another, for Captum."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Inputs,
        vectors: Tensor,
        start: Tensor,
        at: Point,
        of: Of,
        steps: int,
    ) -> None:
        self.model = model
        self.inputs = inputs
        self.vectors = vectors
        self.start = start
        self.at = at
        self.of = of
        self.steps = steps
        self.larger = MAGNIFIED if vectors.dtype.itemsize < 4 else 1.0
        self.done = 0  # texts on the way

    def integrated(self, target: Target) -> tuple[Tensor, Tensor]:
        """Scores [B, T, D] of a target, and by how much they miss its change [B]."""
        try:
            from captum.attr import IntegratedGradients
        except ImportError as error:
            raise LoadError(
                "integrated_gradients needs captum: pip install 'alti[gradients]'"
            ) from error
        single = network(self.model).config.pad_token_id is None  # some classifiers take one text
        together = 1 if single else at_once(self.inputs.mask, AT_ONCE)
        given = target.tensors()
        nothing: dict[str, Any] = dict.fromkeys(given)
        self.target = replace(target, **nothing)
        self.names = list(given)
        with torch.enable_grad():
            scores, gap = IntegratedGradients(self._value, multiply_by_inputs=True).attribute(
                self.vectors,
                self.start,
                additional_forward_args=(*given.values(), *self.inputs.tensors.values()),
                n_steps=self.steps,
                internal_batch_size=max(together, len(self.vectors)),
                return_convergence_delta=True,
            )
        return scores.detach() / self.larger, gap.detach() / self.larger

    def _value(self, given: Tensor, *tensors: Tensor) -> Tensor:
        """What is explained [n] where the text enters as these vectors [n, T, D]."""
        named = dict(zip([*self.names, *self.inputs.tensors], tensors, strict=True))
        chosen: dict[str, Any] = {name: named.pop(name) for name in self.names}
        parts = iter(parts_of(self.inputs, given))
        with evaluating(self.model), entering(self.model, self.at, lambda _: next(parts)):
            output = network(self.model)(**named, return_dict=True)
        target = replace(self.target, **chosen)
        total = self.steps * len(self.vectors)
        self.done = min(self.done + len(given), total)
        report(self.done, total)
        return (
            self.larger
            * target.joined(explained(output, target, network(self.model).config, self.of))[:, 0]
        )


def _slopes(
    model: nn.Module, inputs: Inputs, target: Target, at: Point, of: Of
) -> tuple[Tensor, Tensor, Any]:
    """Vectors [B, T, D] where the text enters, gradients there [B, K, T, D], and the output.

    With a `total` target there is one gradient, of the sum.
    """
    leaves: list[Tensor] = []

    def leaf(x: Tensor) -> Tensor:
        leaves.append(x.detach().requires_grad_())
        return leaves[-1]

    inner = network(model)
    watched = telling(inner, back=True)
    with torch.enable_grad(), evaluating(model), entering(model, at, leaf), watched:
        output = inner(**inputs.asking(target), return_dict=True)
        values = explained(output, target, inner.config, of)  # [B, K]
        larger = torch.ones_like(values)
        if of == "probability":
            larger = _larger(model, output, target)
        if target.total:
            larger = larger.amin(1, keepdim=True)
        magnified = (larger * target.joined(values)).unbind(1)
    last = len(magnified) - 1
    slopes = [
        torch.cat(torch.autograd.grad(value.sum(), leaves, retain_graph=k < last), 1)
        for k, value in enumerate(magnified)
    ]
    vectors = torch.cat([leaf.detach() for leaf in leaves], 1)
    return vectors, torch.stack(slopes, 1) / larger[..., None, None], output


def _larger(model: nn.Module, output: Any, target: Target) -> Tensor:
    """Powers of two [B, K] that keep a gradient from vanishing in half precision.

    Of a confident model it is p (1 − p).
    """
    logits = target_logits(output, target).detach()
    config = network(model).config
    if output.logits.dtype.itemsize >= 4 or kind_of(config, logits.shape[-1]) == "value":
        return torch.ones_like(logits[..., 0])
    chances = probabilities(logits, config)
    slopes = Target().of(chances * (1 - chances), target.chosen(logits))
    return slopes.clamp_min(2.0**-40).log2().neg().floor().exp2()


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
    if inputs.split is not None and "input_ids" not in inputs.tensors:
        raise UsageError(
            f"baseline = {baseline!r} is a token, and frames of a sound are none: use "
            "baseline='zero'"
        )
    with torch.no_grad():
        filling = network(model).get_input_embeddings()(
            inputs.special.new_full((1,), fill, dtype=torch.long)
        )[0]
    found: list[Tensor] = []
    kept = iter(parts_of(inputs, inputs.special))

    def swap(x: Tensor) -> Tensor:  # not the ids: some models read positions off them
        return torch.where(next(kept)[..., None], x, filling.to(x))

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
    return torch.cat(found, 1)
