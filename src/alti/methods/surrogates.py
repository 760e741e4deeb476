"""Methods that take sources away, groups of tokens or single ones, and look at what is left."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from alti._errors import LoadError, UsageError
from alti.methods.ablation import values_without
from alti.methods.consensus import consensus
from alti.methods.linear import Of as LinearOf
from alti.methods.linear import linear
from alti.methods.logits import Of, explained, require_finite, target_logits
from alti.methods.registry import method
from alti.methods.types import Inputs, Scores, Target
from alti.read.exactness import untouched
from alti.read.modules import network

CANDIDATES = 64  # random halves that a design is taken from
RIDGE = 3.0  # the penalty on what differs from the prior; chosen on data, as the next one is
FLOOR = 0.3  # how freely a source without a prior moves, next to the mean of them
LEAST = 1e-18  # a sum of squares below this is rounding: its terms are of numbers up to 1


@method(class_specific=True, signed=True, many_passes=True, takes_groups=True, shortens=True)
def leave_one_out(
    model: nn.Module, inputs: Inputs, target: Target, *, of: Of = "log_prob"
) -> Scores:
    """Leave one out: how much the log-probability falls without each token, or each group."""
    output = untouched(model, inputs.tensors)
    target = replace(_asked(output, inputs, target), total=False)  # a total is the sum of the rows
    whole = explained(output, target, network(model).config, of)
    scores = whole.new_zeros(*whole.shape, inputs.source_count)
    for part in _parts(inputs, target, together=inputs.groups is None):
        kept = ~torch.eye(len(part.live), dtype=torch.bool, device=whole.device)
        fall = whole[part.row, part.span] - part.values(model, kept, of)  # [s, K]
        scores[part.row, part.span, part.live] = fall.T.where(part.seen, 0)
    return Scores(scores, output=output)


@method(
    class_specific=True,
    signed=True,
    many_passes=True,
    takes_groups=True,
    shortens=True,
    library="sklearn",
)
def contextcite(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    ablations: int = 64,
    keep: float = 0.5,
    alpha: float = 0.01,
    seed: int = 0,
    of: Of = "log_prob",
) -> Scores:
    """ContextCite: a sparse linear model of the log-probability of random parts of the text.

    Each token or group is kept with probability `keep`; a Lasso of strength `alpha` is fitted to
    `ablations` such texts (Cohen-Wang et al., 2024). The result's `intercept` is what it says of
    the text without all of them.
    """
    _require(ablations=ablations, keep=keep, alpha=alpha)
    _sklearn()  # before any work is done for it
    output = untouched(model, inputs.tensors)
    asked = _asked(output, inputs, target)
    whole = asked.joined(explained(output, asked, network(model).config, of))
    scores = whole.new_zeros(*whole.shape, inputs.source_count)
    intercepts = torch.zeros_like(whole)
    for part in _parts(inputs, asked):
        kept = _drawn(len(part.live), ablations, keep, seed).to(whole.device)
        values = part.values(model, kept, of)
        for k, (seen, own) in enumerate(zip(part.seen, values.T, strict=True)):
            weights, intercept = _lasso(kept[:, seen], own / part.summed, alpha)
            number = part.span.start + k
            scores[part.row, number, part.live[seen]] = part.summed * weights.to(scores)
            intercepts[part.row, number] = part.summed * intercept
    if target.total and not asked.total:  # the sum of the rows
        intercepts = target.joined(intercepts)
    return Scores(scores, output=output, extra={"intercept": intercepts})


@method(class_specific=True, signed=True, many_passes=True, takes_groups=True, shortens=True)
def surrogate(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    *,
    ablations: int = 10,
    prior: Literal["consensus", "linear"] = "consensus",
    seed: int = 0,
    of: LinearOf = "log_prob",
) -> Scores:
    """Surrogate: a linear model fitted to few ablations, starting from a method that needs none.

    The scores of `prior` are scaled to what the model says of the text and of `ablations` random
    halves of it; a ridge regression explains what they leave, and is freer where they are large.
    """
    _require(ablations=ablations)
    guess = _guessed(model, inputs, _splittable(inputs, target), prior, of)
    target = _asked(guess.output, inputs, target)
    whole = target.joined(explained(guess.output, target, network(model).config, of)).detach()
    scores = whole.new_zeros(*whole.shape, inputs.source_count)
    for part in _parts(inputs, target):
        kept = _design(len(part.live), ablations, seed).to(whole.device)
        halves = part.values(model, kept, of)
        values = torch.cat([halves, whole[part.row, part.span][None]])  # [n + 1, K]
        kept = torch.cat([kept, torch.ones_like(kept[:1])])
        start = guess.tokens[part.row, part.span][:, part.live]  # [K, s]
        for k, seen in enumerate(part.seen):
            fitted = _fitted(kept[:, seen].double(), values[:, k].double(), start[k, seen].double())
            scores[part.row, part.span.start + k, part.live[seen]] = fitted.to(scores)
    return Scores(scores, output=guess.output)


def _guessed(model: nn.Module, inputs: Inputs, target: Target, prior: str, of: LinearOf) -> Scores:
    """What a method without ablations says of each source: [B, K, S]."""
    if prior == "consensus":
        return consensus(model, inputs, target)
    scores = linear(model, inputs, target, of=of)
    count = inputs.source_count
    by_source = [
        _added(tokens, sources, count)
        for tokens, sources in zip(scores.tokens, inputs.sources, strict=True)
    ]
    return replace(scores, tokens=torch.stack(by_source))


def _require(ablations: int, keep: float = 0.5, alpha: float = 1.0) -> None:
    if ablations < 1:
        raise UsageError(f"ablations = {ablations} is not a number of texts: give 1 or more")
    if not 0 < keep < 1:
        raise UsageError(f"keep = {keep} is no share of a text: give a number between 0 and 1")
    if not alpha > 0:
        raise UsageError(f"alpha = {alpha} is not above 0: give a small number, like 0.01")


# What can be taken away


@dataclass(frozen=True, slots=True)
class _Part:
    """One text, some predictions about it, and the sources that they can do without."""

    inputs: Inputs
    row: int
    target: Target
    span: slice  # where the rows of these predictions are among all of the text
    sources: Tensor  # [T]  of each token; -1: it stays
    live: Tensor  # [s]  the numbers of the sources that some of the predictions can do without
    seen: Tensor  # [K, s]  which of them each can do without; [1, s] for a total

    def values(self, model: nn.Module, kept: Tensor, of: Of) -> Tensor:
        """What is explained where only some sources [n, s] are kept: [n, K], or [n, 1]."""
        every = kept.new_ones(len(kept), self.inputs.source_count + 1)  # the last: no source
        every[:, self.live] = kept
        removed = ~every[:, self.sources]
        values = values_without(model, self.inputs, self.target, self.row, removed, of)
        return self.target.changed(lambda x: x[self.row : self.row + 1]).joined(values)

    @property
    def summed(self) -> int:
        """How many predictions a value is the sum of."""
        if not self.target.total or self.target.index is None:
            return 1
        real = self.target.real
        return self.target.index.shape[1] if real is None else int(real[self.row].sum())


def _parts(inputs: Inputs, target: Target, *, together: bool = False) -> Iterator[_Part]:
    """Every text with all its predictions, or with one at a time.

    A model that sees both sides cannot do without the token that a prediction is read from, so
    each of its predictions has shortened texts of its own, unless they may go `together`.
    """
    assert target.index is not None
    count = target.index.shape[1]
    for row in range(len(inputs.mask)):
        if together or inputs.ordered or target.position is None:
            yield _part(inputs, target, row, slice(0, count))
            continue
        for k, one in enumerate(target.one_by_one(target.index)):
            yield _part(inputs, one, row, slice(k, k + 1))


def _part(inputs: Inputs, target: Target, row: int, span: slice) -> _Part:
    free = _free(inputs, target, row)  # [K, T]
    sources = inputs.sources[row].masked_fill(~free.any(0), -1)
    seen = _added(free.float(), sources, inputs.source_count) > 0
    live = seen.any(0).nonzero()[:, 0]
    if target.total:
        seen = seen.any(0, keepdim=True)
    return _Part(inputs, row, target, span, sources, live, seen[:, live])


def _free(inputs: Inputs, target: Target, row: int) -> Tensor:
    """Which tokens of a text each prediction can do without: [K, T].

    Not those that it does not see; and not the one that it is read from in a model that sees both
    sides, unless that is the last: then the one before it is read.
    """
    assert target.index is not None
    free = (inputs.mask[row] & (inputs.sources[row] >= 0)).expand(target.index.shape[1], -1)
    if target.real is not None:
        free = free & target.real[row, :, None]
    if target.position is None:
        return free
    position = target.position[row, :, None]  # [K, 1]
    every = torch.arange(free.shape[1], device=free.device)
    if inputs.ordered:
        return free & (every <= position + (inputs.split or 0))
    return free & ((every != position) | (position == inputs.mask[row].sum() - 1))


def _added(x: Tensor, sources: Tensor, count: int) -> Tensor:
    """Numbers [K, T] of the tokens of each source, added up: [K, S]."""
    sums = x.new_zeros(len(x), count + 1)
    return sums.index_add_(1, sources % (count + 1), x)[:, :count]  # -1: the last, left out


def _splittable(inputs: Inputs, target: Target) -> Target:
    """The target, a total only where the predictions can be explained from the same texts."""
    return replace(target, total=target.total and inputs.ordered)


def _asked(output: Any, inputs: Inputs, target: Target) -> Target:
    """The same with its outputs chosen; a classifier finds its own position."""
    logits = target_logits(output, target)
    require_finite(logits.detach())
    position = None if output.logits.dim() == 2 else target.position
    split = _splittable(inputs, target)
    return replace(split, index=target.chosen(logits), position=position)


# Which texts are read, and what is fitted to them


def _drawn(sources: int, count: int, keep: float, seed: int) -> Tensor:
    """Which sources are kept in each text: [count, s].

    Drawn source by source, so that those behind what a prediction sees change nothing for it.
    """
    chance = torch.rand(sources, count, generator=torch.Generator().manual_seed(seed))
    return (chance < keep).T


def _design(sources: int, count: int, seed: int) -> Tensor:
    """Random halves that tell most about all sources: [count, s]."""
    candidates = _drawn(sources, max(CANDIDATES, count), 0.5, seed)
    return candidates[_telling(candidates, count)]


def _telling(candidates: Tensor, count: int) -> list[int]:
    """The numbers of some of the candidates [n, s].

    One after another the candidate with the largest z M⁻¹ zᵀ is taken, z its signs ±½ and
    M = RIDGE · I + Σ zᵀz over those that are taken.
    """
    signs = candidates.double() - 0.5
    rest = signs @ signs.T  # RIDGE · z M⁻¹ zᵀ of all pairs, by the formula of Sherman and Morrison
    taken: list[int] = []
    for _ in range(count):
        left = rest.diagonal().round(decimals=9)  # many are equal: rounding should not choose
        left[taken] = -1
        taken.append(int(left.argmax()))
        column = rest[:, taken[-1]]
        rest = rest - column.outer(column) / (RIDGE + column[taken[-1]])
    return taken


def _fitted(kept: Tensor, values: Tensor, prior: Tensor) -> Tensor:
    """The effect of each source [s] on values [n] of texts with some kept [n, s] (0 or 1)."""
    columns, y = kept - kept.mean(0), values - values.mean()
    prior = prior / prior.abs().sum().clamp_min(torch.finfo(prior.dtype).tiny)
    line = columns @ prior
    size = line @ line
    scale = (line @ y / size).clamp_min(0) if float(size) > LEAST else size.new_zeros(())
    spread = prior.abs() + FLOOR * prior.abs().mean()
    free = spread / spread.mean() if bool(spread.any()) else torch.ones_like(spread)
    # (XᵀX + RIDGE · diag(1 / free))⁻¹ Xᵀ r, as a system of n equations instead of s
    gram = (columns * free) @ columns.T + RIDGE * torch.eye(len(y)).to(columns)
    weights: Tensor = torch.linalg.solve(gram, y - scale * line)
    return scale * prior + free * (columns.T @ weights)


def _sklearn() -> tuple[Any, Any]:
    try:
        from sklearn.linear_model import Lasso
        from sklearn.preprocessing import StandardScaler
    except ImportError as error:
        raise LoadError("contextcite needs scikit-learn: pip install 'alti[context]'") from error
    return Lasso, StandardScaler


def _lasso(kept: Tensor, values: Tensor, alpha: float) -> tuple[Tensor, float]:
    """Weights [s] and the intercept of a Lasso on standardised columns."""
    if not kept.shape[1]:
        return values.new_zeros(0), float(values.mean())
    lasso, scaler = _sklearn()
    scaled = scaler()
    columns = scaled.fit_transform(kept.double().cpu().numpy())
    # closer than the default: then rounding does not decide when it stops
    fit = lasso(alpha=alpha, tol=1e-10, max_iter=100_000).fit(
        columns, values.double().cpu().numpy()
    )
    weights = fit.coef_ / scaled.scale_
    return torch.from_numpy(weights), float(fit.intercept_ - scaled.mean_ @ weights)
