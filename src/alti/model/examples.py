"""What is proved of a model on an example: that it is read exactly, and where its head reads."""

from dataclasses import replace

from alti._errors import UnsupportedModelError
from alti.methods import Inputs, Target
from alti.methods.proofs import (
    check_example,
    check_positions,
    image_of,
    missing,
    prove_once,
    sound_of,
)
from alti.model.assembly import target_of
from alti.model.other_heads import OtherHeads
from alti.model.question import Question
from alti.model.request import Request, Task
from alti.model.tasks import task_of
from alti.read.linear_view import require_complete
from alti.read.long import is_long_text
from alti.read.modules import network
from alti.read.quantised import without_gradients_said

SENTENCES = (
    "A clever blend of fact and fiction.",
    "Nobody expected the second half to drag quite so badly, did they?",
)


def check(model: OtherHeads) -> list[float]:
    """The worst relative error of each block, and that the head reads where it is taken to."""
    base = network(model.model).base_model
    if base.main_input_name == "pixel_values":
        return check_example(base, image_of(base))
    if base.main_input_name == "input_features":
        return check_example(base, sound_of(base))
    task = _example(model)
    if task is not None:
        _check_positions(model, task)
    texts = [model.encoder.encode(text, truncate=True, bos=False) for text in SENTENCES]
    return check_example(base, model.encoder.collate(texts).tensors)


def completeness(model: OtherHeads) -> float | None:
    """How much of a prediction the linear view cannot account for; None without a head."""
    task = _example(model)
    if task is None:
        return None
    inputs, target = _batch(model, task)
    position = None if target.read_at is None else target.read_at[:, 0]
    gap = missing(model.subject, inputs.tensors, position)
    require_complete(gap, model.model)
    return float(gap)


def prove_positions(model: OtherHeads, task: Task) -> None:
    """Once for a model: its head reads the positions that the scores are taken for."""
    if model.head.kind != "encoder":
        several = len(task.encoded.ids) > 1  # a text of one token proves nothing about two
        if is_long_text(len(task.encoded.ids)):
            task = _example(model) or task
        what = "positions", model.head.pool, several
        prove_once(model.subject, what, lambda: _check_positions(model, task))


def _check_positions(model: OtherHeads, task: Task) -> None:
    inputs, target = _batch(model, task)
    why = "the one that it predicts at"
    if model.head.kind in ("sequence", "choice"):
        family = network(model.model).config.model_type
        entry = f"alti.FAMILIES[{family!r}]"
        why = f"where pool = {model.head.pool!r} in {entry} says"
    # 4-bit layers whose weights a first pass has packed for inference
    with without_gradients_said(model.model, "where its head reads", "load the model again"):
        check_positions(model.subject, inputs, target, why)


def _example(model: OtherHeads) -> Task | None:
    """A text that the head predicts something about; None without a head."""
    try:
        kind = model.head.kind
    except UnsupportedModelError:  # explain does not take it
        return None
    if kind in ("encoder", "choice", "image"):
        return None
    if kind == "seq2seq":
        return _written_example(model)
    request = Request(truncate=True, bos=False)
    if kind == "span":
        return task_of(model, Question(text=SENTENCES[0], text_pair=SENTENCES[1]), request)
    mask = model.encoder.tokenizer.mask_token or ""
    text = f"{SENTENCES[0]} {mask}" if kind == "masked" else SENTENCES[0]
    place = 0 if kind == "token" else None
    return task_of(model, Question(text=text), replace(request, position=place))


def _written_example(model: OtherHeads) -> Task:
    """A source and some tokens that an encoder–decoder could write."""
    ids = [number % model.encoder.vocabulary for number in range(5, 10)]
    if model.encoder.hears:
        features = sound_of(network(model.model).base_model)["input_features"]
        return task_of(model, Question(features=features, answer_ids=ids), Request())
    source = model.encoder.encode(SENTENCES[0], truncate=True)
    return task_of(model, Question(ids=source.ids, answer_ids=ids), Request())


def _batch(model: OtherHeads, task: Task) -> tuple[Inputs, Target]:
    inputs = model.encoder.collate([task.encoded])
    return inputs, target_of([task], inputs.mask.device, total=False)
