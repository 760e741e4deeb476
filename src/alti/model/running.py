"""A batch of texts is run: what a method takes, its scores, and the results made of them."""

from dataclasses import replace
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from alti._errors import UsageError
from alti.methods import Inputs, Scores, Target, call, named
from alti.methods.logits import target_logits
from alti.model.assembly import Assembly, compacted, groups_of, target_of
from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.model.batching import sentence_on_memory
from alti.model.cuda_graphs import GRAIN
from alti.model.examples import prove_positions
from alti.model.lens import require_lens
from alti.model.lens_reading import with_lens
from alti.model.other_heads import OtherHeads
from alti.model.question import Question
from alti.model.request import Request, Task, contrasting_options
from alti.model.tasks import task_of
from alti.read.exactness import untouched
from alti.read.long import is_long_text
from alti.read.modules import network


def batch_of(model: OtherHeads, tasks: list[Task], request: Request) -> tuple[Inputs, Target]:
    """Several texts as what a method takes."""
    recorded = model.recorder and named(request.method).recordable and model.head.takes_batches
    inputs = model.encoder.collate([task.encoded for task in tasks], GRAIN if recorded else 1)
    if request.groups is not None and named(request.method).takes_groups:
        inputs = replace(inputs, groups=groups_of(tasks, inputs.mask))
    target = target_of(tasks, inputs.mask.device, total=request.total)
    return inputs, _with_kept(model, target, inputs.special.shape[1])


def _with_kept(model: OtherHeads, target: Target, tokens: int) -> Target:
    """Of a long text, logits are computed only where predictions are read from."""
    known = "logits_to_keep" in signature(network(model.model).forward).parameters
    if target.position is None or not is_long_text(tokens) or not known:
        return target
    return replace(target, kept=torch.unique(target.position))


def results_of(model: OtherHeads, tasks: list[Task], request: Request) -> list[Attributions]:
    """One batch, explained."""
    method = named(request.method)
    inputs, target = batch_of(model, tasks, request)
    with sentence_on_memory(inputs):
        if method.reads_model:
            prove_positions(model, tasks[0])
        scores = _scores(model, request, inputs, target)
        output = scores.output
        if output is None:
            output = untouched(model.subject, inputs.asking(target))
        made = Assembly(model.head, model.tokenizer, model.name)
        results = made.results(tasks, request, scores, _logits(output, target))
        if request.lens:
            results = with_lens(results, model.subject, model.tokenizer, inputs, target)
    return results


def contrast_of(
    model: OtherHeads, question: Question, against: Any, request: Request
) -> Attribution:
    """One answer rather than another: what the prompt's tokens change about log p of both."""
    if request.lens:
        require_lens(model.head, total=True)
    if question.part is not None:
        raise UsageError("part was given with against, which sets whole answers apart: drop it")
    options = contrasting_options(named(request.method), request.options)
    request = replace(request, options=options, total=True, layers=False)
    other = {"answer" if isinstance(against, str) else "answer_ids": against}
    rival = replace(question, **{"answer": None, "answer_ids": None, "generate": None, **other})
    tasks = [task_of(model, each, request) for each in (question, rival)]
    if tasks[0].encoded.ids == tasks[1].encoded.ids:
        raise UsageError(f"answer and against are both {against!r}: give two different ones")
    inputs, target = batch_of(model, tasks, request)
    with sentence_on_memory(inputs):
        prove_positions(model, tasks[0])
        scores = _scores(model, request, inputs, target)
    made = Assembly(model.head, model.tokenizer, model.name)
    return made.contrast(tasks, request, scores, target_logits(scores.output, target), target)


def _scores(model: OtherHeads, request: Request, inputs: Inputs, target: Target) -> Scores:
    method = named(request.method)
    asked = {"layers": request.layers, **request.options}
    alone = inputs.split is None and not is_long_text(inputs.special.shape[1])
    if model.recorder and alone and model.subject is model.model:
        return model.recorder.run(method, inputs, target, **asked)
    scores = call(method, model.subject, inputs, target, **asked)
    by_token = inputs.split is not None and inputs.groups is None
    return compacted(scores, inputs.mask) if by_token else scores


def _logits(output: Any, target: Target) -> Tensor | None:
    """The logits of every prediction [B, K, C]; None without a head."""
    if getattr(output, "logits", None) is None:
        return None
    return target_logits(output, target).detach()
