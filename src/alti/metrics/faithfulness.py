"""Whether the tokens that are ranked highest are those the prediction rests on.

Every metric here takes the token `ids` of one text, `keep` (True at tokens that are never ranked
and never removed: special tokens, the [MASK] of a masked-position task) and one score per token.
A removed token is deleted, or replaced if a `mask_id` is given. If no token can be removed the
value is nan.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate
from math import comb, nan
from operator import itemgetter
from statistics import fmean

from torch import Tensor

from alti._errors import UsageError
from alti.metrics.registry import Asking, Faithfulness, Question, Vector, metric, ranking, share_of

Keep = Sequence[bool] | Tensor
Removed = frozenset[int]
Extreme = Callable[[float, float], float]  # min or max

BINS = (0.01, 0.05, 0.1, 0.2, 0.5)
EXACT = 4  # up to this many tokens every order is searched
RESOLUTION = 1e-6  # float32 probabilities that are closer differ only by rounding


@metric
def comprehensiveness(
    ids: Sequence[int],
    keep: Keep,
    scores: Vector,
    *,
    bins: Sequence[float] = BINS,
    mask_id: int | None = None,
    envelope: bool = False,
) -> Asking[float]:
    """How far the probability falls without the highest tokens; more is better.

    Σ_bins (p − p without the top ⌈n · bin⌉) / (|bins| + 1): the bin of no token counts in the mean,
    and is 0 (DeYoung et al. 2020). With `envelope` the probability never rises again as more tokens
    are removed, as in the released code of the ALTI paper.

    >>> def predict(questions):
    ...     return [len(ids) / 10 for ids in questions]  # your model's probabilities
    >>> ids, keep, scores = [101, 7, 8, 9], [True, False, False, False], [0, 3, 1, 2]
    >>> alti.metrics.comprehensiveness(predict, ids, keep, scores)
    """
    ranked = _ranked(ids, keep, scores)
    running = min if envelope else None
    return (yield from _over_bins(ids, len(ranked), bins, mask_id, lambda k: ranked[:k], running))


@metric(better="lower")
def sufficiency(
    ids: Sequence[int],
    keep: Keep,
    scores: Vector,
    *,
    bins: Sequence[float] = BINS,
    mask_id: int | None = None,
    envelope: bool = False,
) -> Asking[float]:
    """How far the probability falls with only the highest tokens left; less is better.

    Σ_bins (p − p of the top ⌈n · bin⌉) / (|bins| + 1): the bin of no token counts in the mean, and
    is 0 (DeYoung et al. 2020). With `envelope` the probability never falls again as more tokens
    are added, as in the released code of the ALTI paper.

    >>> def predict(questions):
    ...     return [len(ids) / 10 for ids in questions]  # your model's probabilities
    >>> ids, keep, scores = [101, 7, 8, 9], [True, False, False, False], [0, 3, 1, 2]
    >>> alti.metrics.sufficiency(predict, ids, keep, scores)
    """
    ranked = _ranked(ids, keep, scores)
    running = max if envelope else None
    return (yield from _over_bins(ids, len(ranked), bins, mask_id, lambda k: ranked[k:], running))


@metric(better="lower", curve=True)
def probability_drop(
    ids: Sequence[int],
    keep: Keep,
    scores: Vector,
    *,
    steps: int = 30,
    mask_id: int | None = None,
    envelope: bool = False,
) -> Asking[list[float]]:
    """The probability of the whole text, then without its top 1, 2, …, `steps` tokens.

    >>> def predict(questions):
    ...     return [len(ids) / 10 for ids in questions]  # your model's probabilities
    >>> ids, keep, scores = [101, 7, 8, 9], [True, False, False, False], [0, 3, 1, 2]
    >>> alti.metrics.probability_drop(predict, ids, keep, scores)
    """
    if steps < 0:
        raise UsageError(f"steps = {steps!r} is not a number of tokens to remove: give 0 or more")
    ranked = _ranked(ids, keep, scores)[:steps]
    curve = yield [_without(ids, ranked[:k], mask_id) for k in range(len(ranked) + 1)]
    return list(accumulate(curve, min)) if envelope else curve


def mean_curve(curves: Iterable[Sequence[float]]) -> tuple[list[float], list[int]]:
    """The mean of probability-drop curves at each step, and how many texts are that long.

    A text that has run out of tokens stays at its last probability, so the mean is always over the
    same texts.

    >>> alti.metrics.mean_curve([[0.75, 0.5], [0.25]])
    ([0.5, 0.375], [2, 1])
    """
    curves = [curve for curve in curves if len(curve)]
    longest = max(map(len, curves), default=0)
    means = [fmean(curve[min(k, len(curve) - 1)] for curve in curves) for k in range(longest)]
    return means, [sum(len(curve) > k for curve in curves) for k in range(longest)]


@metric
def aopc(
    ids: Sequence[int], keep: Keep, scores: Vector, *, mask_id: int | None = None
) -> Asking[float]:
    """The area over the curve (Samek et al. 2017).

    The mean of p − p without the top k tokens, over k = 1 … n.

    >>> def predict(questions):
    ...     return [len(ids) / 10 for ids in questions]  # your model's probabilities
    >>> ids, keep, scores = [101, 7, 8, 9], [True, False, False, False], [0, 3, 1, 2]
    >>> alti.metrics.aopc(predict, ids, keep, scores)
    """
    full, *left = yield from probability_drop.ask(
        ids, keep, scores, steps=len(ids), mask_id=mask_id
    )
    return full - fmean(left) if left else nan


@metric
def normalized_aopc(
    ids: Sequence[int], keep: Keep, scores: Vector, *, beam: int = 5, mask_id: int | None = None
) -> Asking[float]:
    """AOPC between the least (0) and the most (1) of any order of the tokens (Edin et al. 2025).

    What is possible differs from text to text and from model to model: only the normalised value
    can be compared between them. If this order lies beyond the bounds that the search found, it
    moves them; nan if they are equal up to rounding.

    >>> def predict(questions):
    ...     return [len(ids) / 10 for ids in questions]  # your model's probabilities
    >>> ids, keep, scores = [101, 7, 8, 9], [True, False, False, False], [0, 3, 1, 2]
    >>> alti.metrics.normalized_aopc(predict, ids, keep, scores)
    """
    own = yield from aopc.ask(ids, keep, scores, mask_id=mask_id)
    least, most = yield from aopc_bounds.ask(ids, keep, beam=beam, mask_id=mask_id)
    lower = min(least, own)
    upper = max(most, own)
    return (own - lower) / (upper - lower) if upper - lower > RESOLUTION else nan


@Faithfulness
def aopc_bounds(
    ids: Sequence[int], keep: Keep, *, beam: int = 5, mask_id: int | None = None
) -> Asking[tuple[float, float]]:
    """The least and the most AOPC of any order in which tokens can be removed, by beam search.

    Of the orders that have removed the same tokens only the best is followed, so up to 4 tokens the
    bounds are exact. Both searches ask in the same n + 1 rounds, each at most beam · n questions in
    one.

    >>> def predict(questions):
    ...     return [len(ids) / 10 for ids in questions]  # your model's probabilities
    >>> alti.metrics.aopc_bounds(predict, [101, 7, 8], [True, False, False])
    """
    if beam < 1:
        raise UsageError(f"beam = {beam!r} searches nothing: give 1 or more")
    removable = _ranked(ids, keep, [0.0] * len(ids))
    n = len(removable)
    if not n:
        return nan, nan
    width = max(beam, comb(n, n // 2)) if n <= EXACT else beam
    [full] = yield [list(ids)]
    low: dict[Removed, float] = {frozenset(): 0.0}  # Σ p of the orders that are followed
    high: dict[Removed, float] = {frozenset(): 0.0}
    for _ in removable:
        larger = (after for removed in [*low, *high] for after in _larger(removed, removable))
        candidates = list(dict.fromkeys(larger))
        answers = yield [_without(ids, removed, mask_id) for removed in candidates]
        p = dict(zip(candidates, answers, strict=True))
        low = _step(low, p, removable, min, width)
        high = _step(high, p, removable, max, width)
    [lowest] = low.values()  # every order ends with all tokens removed
    [highest] = high.values()
    return full - highest / n, full - lowest / n


def _step(
    beams: dict[Removed, float],
    p: dict[Removed, float],
    removable: list[int],
    extreme: Extreme,
    width: int,
) -> dict[Removed, float]:
    """The best sums with one more token removed."""
    sums: dict[Removed, float] = {}
    for removed, total in beams.items():
        for larger in _larger(removed, removable):
            new = total + p[larger]
            sums[larger] = extreme(sums.get(larger, new), new)
    return dict(sorted(sums.items(), key=itemgetter(1), reverse=extreme is max)[:width])


def _larger(removed: Removed, removable: list[int]) -> list[Removed]:
    return [removed | {i} for i in removable if i not in removed]


def _over_bins(
    ids: Sequence[int],
    n: int,
    bins: Sequence[float],
    mask_id: int | None,
    removed: Callable[[int], Sequence[int]],
    running: Extreme | None,
) -> Asking[float]:
    """Σ_bins (p − p without removed(k)) / (|bins| + 1).

    With `running`, of the running minimum or maximum of p, from k = 0 on.
    """
    if not n:
        return nan
    counts = sorted(share_of(n, share) for share in bins)
    if running:
        counts = [0, *counts]
    full, *left = yield [list(ids), *(_without(ids, removed(k), mask_id) for k in counts)]
    if running:
        _, *left = accumulate(left, running)
    return sum(full - p for p in left) / (len(bins) + 1)


def _ranked(ids: Sequence[int], keep: Keep, scores: Vector) -> list[int]:
    """Positions of the tokens that can be removed, the highest score first."""
    order: list[int] = ranking(scores).tolist()
    if not len(ids) == len(keep) == len(order):
        given = f"{len(ids)} ids, {len(keep)} keep and {len(order)} scores"
        raise UsageError(f"{given} are not of one text: give one of each per token")
    return [i for i in order if not keep[i]]


def _without(ids: Sequence[int], removed: Collection[int], mask_id: int | None) -> Question:
    positions = set(removed)
    if mask_id is None:
        return [token for i, token in enumerate(ids) if i not in positions]
    return [mask_id if i in positions else token for i, token in enumerate(ids)]
