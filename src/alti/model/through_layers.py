"""What a prediction is read from, layer by layer, also of texts too long for maps."""

from typing import Any

from alti._errors import UsageError
from alti.methods.through import rows_through
from alti.mix.contributions import contributions
from alti.model.assembly import source_of
from alti.model.attributions import Attributions
from alti.model.model import Model
from alti.model.question import Question
from alti.model.results import Prediction


def through_layers(
    model: Model,
    text: Any = None,
    text_pair: str | None = None,
    *,
    position: int | None = None,
    p: int = 1,
    **asked: Any,
) -> Attributions:
    """What the position that a prediction is read from consists of after each layer, by ALTI.

    The row of `Attribution.relevance(layer)` for every layer, [L, T], without the maps, which a
    long text has no memory for. `asked` is as in `explain` (`answer=`, `part=`, `documents=`, …);
    of several predictions it is their mean.

    >>> through_layers(model, "The capital of France is").words()[-1].top(3)  # after the last layer
    """
    question = Question(text=text, text_pair=text_pair, **asked)
    question.check(model.head)
    if model.head.kind in ("span", "choice", "image"):
        raise UsageError(
            f"a {model.head.kind} model is not followed through its layers: explain it"
        )
    request = model.request(
        method="alti", target=None, against=None, position=position, positions=None, options={}
    )
    task = model.read(question, request)
    inputs, target = model.batch([task], request)
    rows = rows_through(
        model.subject, inputs, target, lambda block: contributions(block, p=p)
    )  # [L, 1, K, T]
    scores = rows[:, 0].mean(1).cpu()
    return Attributions(
        source=source_of(task.encoded),
        predictions=tuple(Prediction(label=f"layer {i}") for i in range(1, len(scores) + 1)),
        scores=scores,
        method="alti",
        model=model.name,
        options={} if p == 1 else {"p": p},
    )
