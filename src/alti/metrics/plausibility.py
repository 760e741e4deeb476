"""Whether the highest tokens are those that people marked as the reason, their rationale.

A rationale is True or False for each token, or the share of people who marked it: half of them are
enough. Special tokens are nobody's reason: leave them out of both. If no token or every token is
marked, no ranking is better than another and the value is nan.
"""

from math import nan

import numpy as np
from numpy.typing import NDArray

from alti._errors import UsageError
from alti.metrics.registry import Vector, array, metric, ranking


@metric(needs="rationale")
def average_precision(scores: Vector, rationale: Vector) -> float:
    """The area under precision over recall; tied tokens count together.

    Σ (recall_k − recall_{k−1}) · precision_k

    >>> alti.metrics.average_precision([0.7, 0.2, 0.1], [0, 1, 0])
    0.5
    """
    marked, order = _marked(scores, rationale)
    if marked.all() or not marked.any():
        return nan
    values = array(scores)[order]
    last = np.flatnonzero(np.append(values[1:] != values[:-1], True))  # of those that are tied
    hits = marked.cumsum()[last]
    return float(np.diff(hits, prepend=0) @ (hits / (last + 1)) / hits[-1])


@metric(needs="rationale")
def token_f1(scores: Vector, rationale: Vector) -> float:
    """The F1 of the top k tokens, k as many as are marked: both precision and recall are this.

    >>> alti.metrics.token_f1([0.7, 0.2, 0.1], [1, 0, 1])
    0.5
    """
    marked, _ = _marked(scores, rationale)
    k = int(marked.sum())
    return nan if k in (0, len(marked)) else float(marked[:k].mean())


def _marked(scores: Vector, rationale: Vector) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Which tokens are marked, the highest score first, and the order."""
    order = ranking(scores)
    marked = array(rationale) >= 0.5
    if len(order) != len(marked):
        given = f"{len(order)} scores and a rationale of {len(marked)} tokens"
        raise UsageError(f"{given} are not of one text: give one of each per token")
    return marked[order], order
