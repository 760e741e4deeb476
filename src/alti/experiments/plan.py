"""What a benchmark computes: model, data, and specs of methods and metrics such as `alti:p=2`."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from alti import methods
from alti._errors import UsageError
from alti.experiments.data import Example, Skipped, read, sample
from alti.experiments.evaluate import BY_SIZE, Setting, Spec
from alti.metrics import METRICS
from alti.model.model import Model

CHUNK = 32  # texts whose questions go through the model together
PAPER = (
    "random",
    "gradient",
    "input_x_gradient",
    "input_x_gradient:aggregate=mean_abs",
    "input_x_gradient:aggregate=sum",
    "integrated_gradients",
    "integrated_gradients:aggregate=mean_abs",
    "integrated_gradients:aggregate=sum",
    "attention",
    "attention_rollout",
    "norms",
    "globenc",
    "alti",
    "alti:p=2",
    "alti_ln2",
    "occlusion",
    "linear",
    "alti_logit",
    "absence",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run computes; a file of rows belongs to one plan."""

    model: str
    data: str
    methods: tuple[str, ...] = PAPER
    metrics: tuple[str, ...] = ("comprehensiveness", "sufficiency")
    split: str | None = None
    text: str | None = None  # name of the column; so are the next three
    label: str | None = None
    rationale: str | None = None
    pair: str | None = None  # the second text
    first: int | None = None  # only this many rows, from the top
    sample: int | None = None  # only this many rows, drawn at random
    seed: int = 0
    mask: bool = False  # removed tokens are masked, not deleted
    mask_token: str | None = None  # how the data spells the mask token, if not as the tokenizer
    envelope: bool = False  # the released code's running extreme, in every metric that has it
    truncate: bool = False
    keep_scores: bool = False
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        if not self.methods or not self.metrics:
            raise UsageError("a benchmark needs at least one method and one metric")
        self._require_rationale()
        for name in ("first", "sample", "chunk"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise UsageError(f"{name} = {count} is not a number of texts: give 1 or more")
        self.setting()

    def _require_rationale(self) -> None:
        given = {metric_name(spec) for spec in self.metrics}
        needs = {name: METRICS[name].needs for name in sorted(given & METRICS.keys())}
        others = [name for name, need in needs.items() if need not in (None, "rationale")]
        if others:
            raise UsageError(
                f"{', '.join(others)} measures the sources of a prompt, which a text has not: "
                "choose a task (--task answer, next or evidence)"
            )
        names = [name for name, need in needs.items() if need]
        if names and self.rationale is None:
            raise UsageError(
                f"{', '.join(names)} compares with human rationales: "
                "name their column (--rationale-column)"
            )

    def setting(self) -> Setting:
        """What is done to every text."""
        return Setting(
            specs={spec: parsed(spec) for spec in self.methods},
            metrics={spec: parsed_metric(spec, envelope=self.envelope) for spec in self.metrics},
            mask=self.mask,
            mask_token=self.mask_token,
            truncate=self.truncate,
            keep_scores=self.keep_scores,
            pairs=self.pair is not None,
        )

    def rows(self) -> Iterator[Example | Skipped]:
        """The rows of the data that the plan covers."""
        examples = read(
            self.data,
            split=self.split,
            text=self.text,
            label=self.label,
            rationale=self.rationale,
            pair=self.pair,
        )
        return sample(islice(examples, self.first), self.sample, self.seed)


def parsed(spec: str) -> Spec:
    """`alti:p=2` is the method alti with the option p = 2."""
    name, *given = spec.split(":")
    options = methods.read_options(given)
    methods.validate(name, options)
    return Spec(name, options)


def parsed_metric(spec: str, *, envelope: bool = False) -> Spec:
    """`probability_drop:steps=60` is the metric probability_drop with the option steps = 60."""
    name, *given = spec.split(":")
    options = methods.read_options(given)
    if name not in METRICS:
        raise UsageError(f"metric {name!r} does not exist: choose from {', '.join(METRICS)}")
    defaults = METRICS[name].options
    methods.validate_options(f"metric {name}", options, defaults)
    if envelope and "envelope" in defaults:
        options = {"envelope": True, **options}
    return Spec(name, options)


def metric_name(column: str) -> str:
    """The metric of a spec or of a column of a table."""
    return column.removesuffix(BY_SIZE).partition(":")[0]


def metrics_of() -> Iterator[tuple[str, dict[str, Any], str]]:
    """The metrics: name, options with their defaults, and a summary in one line."""
    for name, metric in METRICS.items():
        yield name, metric.options, metric.summary


def default_methods(model: Model) -> tuple[str, ...]:
    """PAPER, without methods that cannot be run on the model."""
    return tuple(spec for spec in PAPER if model.suits(methods.METHODS[parsed(spec).name]))
