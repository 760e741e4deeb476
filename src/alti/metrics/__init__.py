"""How good an attribution is. A decorated function in any file of this folder is a metric."""

import pkgutil
from importlib import import_module

from alti.metrics.alignment import alignment_error_rate, count_links, link_precision, link_recall
from alti.metrics.anisotropy import anisotropy, cosine
from alti.metrics.context import evidence, lds, recall_at_k, top_k_drop, top_share_lost
from alti.metrics.faithfulness import (
    aopc,
    aopc_bounds,
    comprehensiveness,
    mean_curve,
    normalized_aopc,
    probability_drop,
    sufficiency,
)
from alti.metrics.plausibility import average_precision, token_f1
from alti.metrics.registry import (
    METRICS,
    Asking,
    Faithfulness,
    Metric,
    OfSources,
    Plausibility,
    Predict,
    answer,
    metric,
)
from alti.metrics.robustness import agreement, jaccard, pairs, spearman

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)

__all__ = [
    "METRICS",
    "Asking",
    "Faithfulness",
    "Metric",
    "OfSources",
    "Plausibility",
    "Predict",
    "agreement",
    "alignment_error_rate",
    "anisotropy",
    "answer",
    "aopc",
    "aopc_bounds",
    "average_precision",
    "comprehensiveness",
    "cosine",
    "count_links",
    "evidence",
    "jaccard",
    "lds",
    "link_precision",
    "link_recall",
    "mean_curve",
    "metric",
    "normalized_aopc",
    "pairs",
    "probability_drop",
    "recall_at_k",
    "spearman",
    "sufficiency",
    "token_f1",
    "top_k_drop",
    "top_share_lost",
]
