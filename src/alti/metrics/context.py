"""Whether scores of a prompt's sources say what its answer rests on.

A source is a sentence, a line or a document of a context, or a word of a prompt. Metrics here are
functions of one score for each source and of numbers that somebody else asked a model for.
"""

from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alti._errors import UsageError
from alti.metrics.registry import Asking, Vector, array, metric, ranking, share_of


@metric(needs="subsets")
def lds(scores: Vector, kept: Any, values: Vector) -> float:
    """The linear datamodeling score: do sums of scores rank contexts as the answer's log p does?

    Spearman's correlation of kept @ scores and values, ties averaged. `kept` [n, S] is 1 where a
    source was left in the context, and `values` [n] are log p of the answer then (Park et al. 2023,
    Cohen-Wang et al. 2024). 0 where all sums are equal, nan where all values are.

    >>> kept = [[1, 1], [1, 0], [0, 1]]
    >>> alti.metrics.lds([0.9, 0.1], kept, [-1.0, -1.2, -3.0])
    1.0
    """
    own = array(scores)
    known = array(values)
    matrix = np.asarray(kept, dtype=np.float64)
    if matrix.shape != (len(known), len(own)):
        given = f"{len(own)} scores, {len(known)} values and kept of {list(matrix.shape)}"
        raise UsageError(f"{given} do not go together: give kept as [values, scores]")
    _require_numbers("scores", own)
    _require_numbers("values", known)
    return _correlation(_ranks(matrix @ own), _ranks(known))


@metric(needs="removal")
def top_k_drop(scores: Vector, *, k: int = 1) -> Asking[float]:
    """How far the answer's log p falls without the k highest sources; more is better.

    A question is a list of sources to remove; its answer is log p of the answer without them.

    >>> def log_p(questions):
    ...     return [5.0 - len(removed) for removed in questions]  # of the answer, by your model
    >>> alti.metrics.top_k_drop(log_p, [0.7, 0.2, 0.1])
    1.0
    """
    full, left = yield [[], highest(scores, k)]
    return full - left


@metric(needs="removal")
def top_share_lost(scores: Vector, *, share: float = 0.2) -> Asking[float]:
    """Which share of what is explained is lost without the highest tokens; more is better.

    Without the top ⌈n · share⌉, at least one. nan where there is nothing to lose.

    >>> def log_p(questions):
    ...     return [5.0 - len(removed) for removed in questions]  # of the answer, by your model
    >>> alti.metrics.top_share_lost(log_p, [0.7, 0.2, 0.1])
    0.2
    """
    n = len(array(scores))
    full, left = yield [[], highest(scores, max(1, share_of(n, share)))]
    return (full - left) / full if full > 0 else nan


@metric(needs="evidence")
def evidence(scores: Vector, known: Vector) -> float:
    """The reciprocal rank of the best-ranked source that is known to be evidence.

    Sources of equal scores share the mean of their ranks. nan where no source is known.

    >>> alti.metrics.evidence([0.7, 0.2, 0.1], [0, 1, 0])
    0.5
    """
    own, marked = _marked(scores, known)
    if not marked.any():
        return nan
    return float(1 / (len(own) - _ranks(own)[marked].max()))


@metric(needs="evidence")
def recall_at_k(scores: Vector, known: Vector, *, k: int = 1) -> float:
    """The share of the known evidence that is among the k highest sources.

    Of at most k: with k = 1 it is 1 where the highest source is evidence. Of sources with equal
    scores each is among the highest as often as chance puts it there. nan where none is known.

    >>> alti.metrics.recall_at_k([0.7, 0.2, 0.1], [0, 1, 0], k=2)
    1.0
    """
    own, marked = _marked(scores, known)
    if not marked.any():
        return nan
    last = own[highest(scores, k)].min()
    tied = own == last
    chance = (min(k, len(own)) - (own > last).sum()) / tied.sum()
    found = (marked & (own > last)).sum() + chance * (marked & tied).sum()
    return float(found / min(k, marked.sum()))


def highest(scores: Vector, k: int) -> list[int]:
    """The k highest sources, ties by position; in the order of the text."""
    if k < 1:
        raise UsageError(f"k = {k!r} is not a number of sources: give 1 or more")
    return sorted(ranking(scores)[:k].tolist())


def _marked(scores: Vector, known: Vector) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    own = array(scores)
    marked = array(known) > 0
    if len(own) != len(marked):
        given = f"{len(own)} scores and {len(marked)} known"
        raise UsageError(f"{given} are not of the same sources: give one of each per source")
    _require_numbers("scores", own)
    return own, marked


def _require_numbers(name: str, numbers: NDArray[np.float64]) -> None:
    if np.isnan(numbers).any():
        raise UsageError(f"{name} with nan have no ranking: give a number for each")


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 0, the lowest first; equal values share the mean of theirs."""
    ordered = np.sort(values)
    below = np.searchsorted(ordered, values, side="left")
    up_to = np.searchsorted(ordered, values, side="right")
    return np.asarray((below + up_to - 1) / 2, dtype=np.float64)


def _correlation(predicted: NDArray[np.float64], real: NDArray[np.float64]) -> float:
    """Pearson's correlation; 0 where nothing is predicted, nan where nothing is to be."""
    a = predicted - predicted.mean() if len(predicted) else predicted
    b = real - real.mean() if len(real) else real
    if not b.any():
        return nan
    return float(a @ b / np.sqrt((a @ a) * (b @ b))) if a.any() else 0.0
