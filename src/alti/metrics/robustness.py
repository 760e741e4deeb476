"""Whether models that differ only in their seed are explained alike: do two rankings agree?"""

from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alti._errors import UsageError
from alti.metrics.registry import Vector, array, ranking, share_of


def jaccard(a: Vector, b: Vector, share: float = 0.25) -> float:
    """The overlap |∩| / |∪| of the top ⌈share · T⌉ tokens of each; without any, nan.

    >>> alti.metrics.jaccard([0.1, 0.7, 0.2], [0.2, 0.5, 0.3], share=0.5)
    1.0
    """
    first, second = _rankings(a, b)
    k = share_of(len(first), share)
    both = len({*first[:k].tolist()} & {*second[:k].tolist()})
    return both / (2 * k - both) if k else nan


def spearman(a: Vector, b: Vector) -> float:
    """The rank correlation 1 − 6 Σ d² / (n (n² − 1)), ties by position; of one token, nan.

    >>> alti.metrics.spearman([0.1, 0.7, 0.2], [0.2, 0.5, 0.3])
    1.0
    """
    first, second = _rankings(a, b)
    n = len(first)
    if n < 2:
        return nan
    ranks = np.empty((2, n))
    ranks[0, first] = ranks[1, second] = np.arange(n)
    d = ranks[0] - ranks[1]
    return float(1 - 6 * (d @ d) / (n * (n * n - 1)))


def agreement(
    attributions: Sequence[Sequence[Vector]],
    predictions: Sequence[Sequence[Any] | NDArray[Any]] | None = None,
    measure: Callable[[Vector, Vector], float] = spearman,
) -> NDArray[np.float64]:
    """How alike M models are explained: the mean of a measure over texts, for each pair: [M, M].

    `attributions[m][t]` are the scores of text t under model m. With the `predictions` of the
    models, only texts on which the two predict the same are counted. Values that are nan are left
    out.

    >>> alti.metrics.agreement([[[0.1, 0.7, 0.2]], [[0.2, 0.5, 0.3]]])  # two models, one text
    """
    texts = len(attributions[0]) if len(attributions) else 0
    for lists in (attributions, predictions if predictions is not None else attributions):
        if len(lists) != len(attributions) or any(len(values) != texts for values in lists):
            raise UsageError(
                "attributions or predictions are missing: "
                "give those of every model for the same texts"
            )
    scores = [[array(text) for text in model] for model in attributions]
    labels = None if predictions is None else [np.asarray(model) for model in predictions]
    matrix = np.empty((len(scores), len(scores)))
    for i, j in combinations_with_replacement(range(len(scores)), 2):
        same = range(texts) if labels is None else np.flatnonzero(labels[i] == labels[j])
        values = np.array([measure(scores[i][t], scores[j][t]) for t in same])
        values = values[~np.isnan(values)]
        matrix[i, j] = matrix[j, i] = values.mean() if len(values) else nan
    return matrix


def pairs(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values of an agreement matrix above its diagonal, one for each pair: [M (M − 1) / 2].

    >>> matrix = alti.metrics.agreement([[[1, 2, 3]], [[1, 3, 2]], [[3, 2, 1]]])  # three models
    >>> alti.metrics.pairs(matrix)
    array([ 0.5, -1. , -0.5])
    """
    return matrix[np.triu_indices(len(matrix), 1)]


def _rankings(a: Vector, b: Vector) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    first = ranking(a)
    second = ranking(b)
    if len(first) != len(second):
        raise UsageError(
            f"{len(first)} and {len(second)} scores are not of one text: "
            "give as many tokens in both"
        )
    return first, second
