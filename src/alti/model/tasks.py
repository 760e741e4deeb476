"""From a question to the tokens that a model reads and the predictions about them."""

import warnings
from dataclasses import replace

from torch import nn

from alti._errors import AltiWarning, UsageError
from alti.methods import named
from alti.model.encoded import Encoded
from alti.model.other_heads import OtherHeads
from alti.model.parts import answer_task
from alti.model.question import Question, read
from alti.model.request import Request, Task
from alti.model.source import By
from alti.read.long import is_long_text
from alti.read.modules import stacks_of

LISTED = 40  # tokens in a message


def task_of(model: OtherHeads, question: Question, request: Request) -> Task:
    """A question as tokens, with the positions that its predictions are read from."""
    encoded = read(question, model.model, model.encoder, truncate=request.truncate, bos=request.bos)
    if model.head.kind == "span":
        return model.grouped_task(model.answer_task(encoded, request), request)
    if encoded.answer is not None:
        return model.grouped_task(_answer_task(encoded, question, request), request)
    task = Task(encoded, _places(model, encoded, request), request.index, request.against)
    for name, outputs in (("target", request.index), ("against", request.against)):
        if len(outputs) not in (0, 1, task.count):
            raise UsageError(
                f"{name} names {len(outputs)} outputs, and there {_are(task.count)}: name one for "
                "all of them, or one for each"
            )
    return model.grouped_task(task, request)


def _are(predictions: int) -> str:
    return "is 1 prediction" if predictions == 1 else f"are {predictions} predictions"


def _answer_task(encoded: Encoded, question: Question, request: Request) -> Task:
    """Each token of an answer is predicted at the token before it."""
    if request.index or request.position is not None or request.positions is not None:
        raise UsageError(
            "target, position and positions say what is explained, and so does an answer: leave "
            "them out"
        )
    return answer_task(encoded, question.part)


def _places(model: OtherHeads, encoded: Encoded, request: Request) -> tuple[int, ...] | None:
    head = model.head
    try:
        if request.positions is not None:
            return head.positions(encoded.ids, encoded.special, request.positions)
        place = head.position(encoded.ids, model.encoder.mask_id, request.position)
    except UsageError as error:
        if head.kind == "sequence":
            raise
        numbered = [f"{i} {token}" for i, token in enumerate(encoded.tokens)]
        shown = numbered if len(numbered) <= LISTED else [*numbered[:LISTED], "…"]
        raise UsageError(f"{error}. The tokens: {', '.join(shown)}") from None
    return None if place is None else (place,)


def keeps_layers(question: Question, groups: By | None) -> bool:
    """By default maps of the layers are kept, but not of answers, which are long, or groups."""
    return not question.has_answer and groups is None


def with_maps(model: nn.Module, request: Request, task: Task, asked: bool | None) -> Request:
    """Maps of the layers of a long text are kept only if they are asked for."""
    tokens = len(task.encoded.ids)
    draws = request.layers and named(request.method).draws_maps
    if not draws or not is_long_text(tokens):
        return request
    count = sum(len(layers) * len(stack.sites) for stack, layers in stacks_of(model))
    if asked:
        size = count * tokens**2 * 4 / 1e9
        warnings.warn(
            f"layers=True keeps {count} maps of {tokens} × {tokens} numbers: {size:.1f} GB",
            AltiWarning,
            stacklevel=3,
        )
    return replace(request, layers=bool(asked))
