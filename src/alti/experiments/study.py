"""What a benchmark of contexts computes: which sources of a prompt does an answer rest on?

Three tasks: `answer` (sources of documents, by what happens without them), `next` (words of a
prompt, one next word against another) and `evidence` (where the answer is known to stand).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import get_args

from alti import methods
from alti._errors import UsageError
from alti.experiments.asked import Asked, Shape, asked
from alti.experiments.data import Skipped, sample
from alti.experiments.evaluate import Spec
from alti.experiments.plan import parsed, parsed_metric
from alti.metrics import METRICS
from alti.model.model import Model
from alti.model.source import Unit

DEFAULT_METRICS = {
    "answer": ("lds", "top_k_drop:k=1", "top_k_drop:k=3", "top_k_drop:k=5"),
    "next": ("evidence", "top_share_lost"),
    "evidence": ("evidence", "recall_at_k:k=1"),
}
KNOWN = {  # what is known about the sources of each task
    "answer": ("subsets", "removal"),
    "next": ("evidence", "removal"),
    "evidence": ("evidence", "removal"),
}
METHODS = (
    "random",
    "attention",
    "alti",
    "linear:of=log_prob",
    "absence",
    "dimming",
    "consensus",
    "leave_one_out",
    "contextcite:ablations=32",
    "surrogate",
)


@dataclass(frozen=True, slots=True)
class Study:
    """What a run computes; a file of rows belongs to one study, as to one plan."""

    model: str
    data: str
    task: str
    methods: tuple[str, ...]
    metrics: tuple[str, ...] = ()  # none: those of the task
    split: str | None = None
    first: int | None = None  # only this many rows, from the top
    sample: int | None = None  # only this many rows, drawn at random
    seed: int = 0
    group: str = "sentence"  # what the sources of documents are
    generate: int = 16  # tokens that the model writes where no answer is given
    subsets: int = 64  # contexts with half of the sources, for lds
    distractors: int | None = None  # documents beside the gold one; None: all documents

    def __post_init__(self) -> None:
        if self.task not in KNOWN:
            raise UsageError(f"task {self.task!r} does not exist: choose {', '.join(KNOWN)}")
        object.__setattr__(self, "metrics", self.metrics or DEFAULT_METRICS[self.task])
        if not self.methods:
            raise UsageError("a benchmark needs at least one method")
        self._require_counts()
        units = [unit for unit in get_args(Unit) if unit != "message"]
        if self.group not in units:
            raise UsageError(f"group {self.group!r} does not exist: choose {', '.join(units)}")
        self._require_known()
        self.specs()

    def _require_counts(self) -> None:
        least = {"first": 1, "sample": 1, "generate": 1, "subsets": 2, "distractors": 1}
        for name, minimum in least.items():
            count = getattr(self, name)
            if count is not None and count < minimum:
                raise UsageError(f"{name} = {count} is too few: give {minimum} or more")

    def _require_known(self) -> None:
        for spec, (name, _) in self.measures().items():
            if METRICS[name].needs not in KNOWN[self.task]:
                fitting = [own for own in METRICS if METRICS[own].needs in KNOWN[self.task]]
                raise UsageError(
                    f"metric {spec} does not fit the task {self.task}: choose from "
                    f"{', '.join(fitting)}"
                )

    def specs(self) -> dict[str, Spec]:
        """The methods with their options."""
        return {spec: parsed(spec) for spec in self.methods}

    def measures(self) -> dict[str, Spec]:
        """The metrics with their options."""
        return {spec: parsed_metric(spec) for spec in self.metrics}

    def rows(self) -> Iterator[Asked | Skipped]:
        """The questions of the data that the study covers."""
        shape = Shape(self.group, self.generate, self.distractors, self.seed)
        questions = asked(self.data, self.task, shape, split=self.split)
        return sample(islice(questions, self.first), self.sample, self.seed)


def default_methods(model: Model | None = None) -> tuple[str, ...]:
    """The methods that exist, and that can be run on the model."""
    known = [spec for spec in METHODS if methods.METHODS[parsed(spec).name].is_installed]
    if model is None:
        return tuple(known)
    return tuple(spec for spec in known if model.suits(methods.METHODS[parsed(spec).name]))
