"""Scores of a batch become results: labels, probabilities, the user's own text."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from alti._errors import AltiError
from alti.methods import Scores, Target, named
from alti.methods.logits import require_finite
from alti.model.answers import prompt_of
from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.model.encoded import Encoded
from alti.model.head import Head
from alti.model.request import Request, Task
from alti.model.results import Prediction, added_up, log_prob_of, together
from alti.model.source import Source

RELATIVE = "relative"  # what scores are of that are sums of shares


@dataclass(frozen=True, slots=True)
class Assembly:
    """Makes results of one model."""

    head: Head
    tokenizer: PreTrainedTokenizerBase | None
    name: str

    def results(
        self, tasks: list[Task], request: Request, scores: Scores, logits: Tensor | None
    ) -> list[Attributions]:
        """A result for each text; logits are [B, K, C], None without a head."""
        _require_finite(request.method, scores, logits)
        return [
            self._result(task, request, scores, row, None if logits is None else logits[row])
            for row, task in enumerate(tasks)
        ]

    def _result(
        self, task: Task, request: Request, scores: Scores, row: int, logits: Tensor | None
    ) -> Attributions:
        length = len(task.encoded.ids)
        layers = None
        if scores.layers is not None and not task.groups:
            layers = scores.layers[:, row, :length, :length].cpu().clone()
        source = task.source or source_of(task.encoded)
        count = 1 if request.total else task.count
        extra: list[dict[str, float]] = [{} for _ in range(task.count)]
        of = RELATIVE if scores.relative else named(request.method).of(request.options)
        predictions = self._predictions(task, of, logits, extra)
        if request.total:
            extra = [log_prob_of(source, predictions)]
            predictions = (_titled(together(source, predictions), predictions, task.title),)
        extra = [
            {**extra[k], **{name: float(values[row, k]) for name, values in scores.extra.items()}}
            for k in range(count)
        ]
        columns, rest = _columns(task, request, scores.tokens[row, :count].cpu())
        if rest is not None:
            extra = [{**extra[k], "ungrouped": float(rest[k])} for k in range(count)]
        if task.groups:
            predictions = tuple(replace(one, position=None) for one in predictions)
        return Attributions(
            source=source,
            predictions=predictions,
            scores=columns,
            layers=layers,
            method=request.method,
            options=request.options,
            model=self.name,
            extra=tuple(extra),
        )

    def contrast(
        self, tasks: list[Task], request: Request, scores: Scores, logits: Tensor, target: Target
    ) -> Attribution:
        """The difference of two answers to one prompt, over the prompt; logits are [2, K, C]."""
        _require_finite(request.method, scores, logits)
        encoded = tasks[0].encoded
        method = named(request.method)
        by_groups = request.groups is not None and method.takes_groups
        length = len(tasks[0].groups) if by_groups else encoded.prompt or 0
        tokens = scores.tokens[:, :, :length]
        difference = tokens[:1] - tokens[1:]
        if scores.vectors is not None:
            vectors = scores.vectors[:, :, :length]
            mask = torch.ones(1, length, dtype=torch.bool, device=vectors.device)
            difference = method.aggregated(vectors[:1] - vectors[1:], mask, request.options)
        columns, rest = _columns(tasks[0], request, difference[0, 0].detach().cpu())
        outside = {} if rest is None else {"ungrouped": float(rest)}
        logs = logits.double().log_softmax(-1)
        own, other = target.joined(Target().of(logs, target.chosen(logs)))[:, 0].tolist()
        label = " rather than ".join(repr(task.encoded.text_pair) for task in tasks)
        chance = math.exp(own)
        return Attribution(
            source=_of_prompt(tasks[0].source) or source_of(prompt_of(encoded)),
            prediction=Prediction(label=label, probability=chance, of=request.options["of"]),
            scores=columns,
            method=request.method,
            options=request.options,
            model=self.name,
            extra={"log_prob": own, "log_prob_against": other, **outside},
        )

    def _predictions(
        self, task: Task, of: str | None, logits: Tensor | None, extra: list[dict[str, float]]
    ) -> tuple[Prediction, ...]:
        """What the model says at each position; the value of a regression is in `extra` too."""
        positions = task.positions or (None,)
        if logits is None:
            return tuple(Prediction(position=position) for position in positions)
        made = []
        for k, position in enumerate(positions):
            prediction = self._prediction(logits[k], position, task, k)
            prediction = replace(prediction, of=of)
            if prediction.probability is None and prediction.index is not None:
                extra[k]["value"] = float(logits[k, prediction.index])
                prediction = replace(prediction, value=extra[k]["value"])
            made.append(prediction)
        return tuple(made)

    def _prediction(self, logits: Tensor, position: int | None, task: Task, k: int) -> Prediction:
        asked = chosen(task.index, k)
        rival = chosen(task.against, k)
        index, label, probability = self.head.prediction(self.tokenizer, logits, asked)
        label = task.labels[k] if task.labels else label
        if asked is not None and task.encoded.answer is None:
            self.head.warn_of_spaces(self.tokenizer, logits, index)
        if rival is not None:
            _, name, _ = self.head.prediction(self.tokenizer, logits, rival)
            quoted = (each if each == each.strip() else repr(each) for each in (label, name))
            label = " rather than ".join(quoted)
            if index == rival:
                warnings.warn(
                    f"the model predicts {name!r} itself: name a target to explain against it",
                    stacklevel=7,
                )
        return Prediction(
            label=label, index=index, probability=probability, position=position, against=rival
        )


def target_of(tasks: list[Task], device: torch.device, *, total: bool) -> Target:
    """What is explained about a batch of texts; those with fewer predictions repeat their last."""
    count = max(task.count for task in tasks)

    def rows(values: Callable[[Task, int], int | None]) -> Tensor | None:  # [B, K]
        listed = [[values(task, min(k, task.count - 1)) for k in range(count)] for task in tasks]
        return None if listed[0][0] is None else torch.tensor(listed, device=device)

    real = [[k < task.count for k in range(count)] for task in tasks]
    return Target(
        index=rows(lambda task, k: chosen(task.index, k)),
        position=rows(_place),
        against=rows(lambda task, k: chosen(task.against, k)),
        which=rows(lambda task, k: chosen(task.which, k)),
        real=None if all(map(all, real)) else torch.tensor(real, device=device),
        total=total,
    )


def _place(task: Task, k: int) -> int | None:
    """The position that a prediction is read from; in an encoder–decoder, the decoder's own."""
    if task.positions is None:
        return None
    return task.positions[k] - (task.encoded.decoder or 0)


def groups_of(tasks: list[Task], mask: Tensor) -> Tensor:
    """The group of each token of a batch, -1 where it is in none: [B, T], as `mask`."""
    groups = torch.full(mask.shape, -1)
    for row, task in enumerate(tasks):
        columns = mask[row].nonzero()[:, 0].cpu()
        for number, tokens in enumerate(task.groups):
            groups[row, columns[list(tokens)]] = number
    return groups.to(mask.device)


def compacted(scores: Scores, mask: Tensor) -> Scores:
    """Scores whose columns are a text's own tokens, then padding, for `mask` [B, T].

    An encoder–decoder has padding between what its two stacks read.
    """
    if bool(mask.all()):
        return scores
    order = (~mask).byte().argsort(dim=1, stable=True)  # [B, T]
    columns = order[:, None]  # of [B, K, T]
    vectors, layers = scores.vectors, scores.layers
    if vectors is not None:
        vectors = vectors.gather(2, columns[..., None].expand_as(vectors))
    if layers is not None:
        rows = layers.gather(2, order[None, :, :, None].expand_as(layers))
        layers = rows.gather(3, columns[None].expand_as(rows))
    tokens = scores.tokens.gather(2, columns.expand_as(scores.tokens))
    return replace(scores, tokens=tokens, layers=layers, vectors=vectors)


def _columns(task: Task, request: Request, scores: Tensor) -> tuple[Tensor, Tensor | None]:
    """Scores [..., T] of a text, or by its groups, and what tokens of no group have in all."""
    if not task.groups:
        return scores[..., : len(task.encoded.ids)].clone(), None
    if named(request.method).takes_groups:
        return scores[..., : len(task.groups)].clone(), None
    return added_up(scores, task.groups)


def _of_prompt(source: Source | None) -> Source | None:
    """The groups of a prompt without its answer."""
    if source is None:
        return None
    return replace(source, texts=source.texts[:1], answer=None, decoder=None)


def chosen(outputs: tuple[int, ...], k: int) -> int | None:
    """The output that was named for prediction k: one for all, or one for each."""
    if not outputs:
        return None
    return outputs[0] if len(outputs) == 1 else outputs[k]


def single(result: Attributions) -> Attribution:
    """The result of one prediction about a text."""
    return result[0]


def source_of(encoded: Encoded) -> Source:
    """A text that was tokenized, as a result keeps it."""
    pair = () if encoded.text_pair is None else (encoded.text_pair,)
    return Source(
        texts=(encoded.text, *pair),
        tokens=tuple(encoded.tokens),
        ids=tuple(encoded.ids),
        offsets=tuple(encoded.offsets),
        segments=tuple(encoded.segments),
        special=torch.tensor(encoded.special),
        cut=encoded.cut,
        parts=encoded.parts,
        answer=encoded.answer,
        unknown=_unknown(encoded),
        decoder=encoded.decoder,
        seconds=encoded.seconds,
    )


def _titled(one: Prediction, all_of: tuple[Prediction, ...], title: str) -> Prediction:
    """Several predictions as one that has a name: their probabilities are multiplied."""
    if not title:
        return one
    chances = [each.probability for each in all_of if each.probability is not None]
    return replace(one, label=title, probability=math.prod(chances))


def _unknown(encoded: Encoded) -> tuple[str, ...]:
    """For each token the name of the unknown one if it stands for something else; () if none is."""
    texts = (encoded.text, encoded.text_pair or "")
    tokens = zip(encoded.tokens, encoded.special, encoded.segments, encoded.offsets, strict=True)
    names = tuple(
        token
        if token == encoded.unknown and not special and texts[at][slice(*span)].strip() != token
        else ""
        for token, special, at, span in tokens
    )
    return names if any(names) else ()


def _require_finite(method: str, scores: Scores, logits: Tensor | None) -> None:
    """Numbers that are not finite explain nothing."""
    if logits is not None:
        require_finite(logits)
    require_finite_scores(method, [scores.tokens])


def require_finite_scores(method: str, scores: list[Tensor]) -> None:
    if not all(bool(each.isfinite().all()) for each in scores):
        raise AltiError(
            f"{method} gives scores that are not finite (nan or infinite) for this text: load the "
            "model with dtype='float32' (--dtype float32), or use another method"
        )
