"""Scores of a batch become results: labels, probabilities, the user's own text."""

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from alti._errors import AltiError
from alti.methods import Scores
from alti.methods.logits import require_finite
from alti.model.attribution import Attribution, Attributions, Prediction
from alti.model.head import Head
from alti.model.request import Request, Task
from alti.model.source import Source
from alti.model.tokenize import Encoded


@dataclass(frozen=True, slots=True)
class Assembly:
    """Makes results of one model."""

    head: Head
    tokenizer: PreTrainedTokenizerBase
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
        if scores.layers is not None:
            layers = scores.layers[:, row, :length, :length].cpu().clone()
        extra = [
            {name: float(values[row, k]) for name, values in scores.extra.items()}
            for k in range(task.count)
        ]
        return Attributions(
            source=source_of(task.encoded),
            predictions=self._predictions(task, request, logits, extra),
            scores=scores.tokens[row, :, :length].cpu().clone(),
            layers=layers,
            method=request.method,
            options=request.options,
            model=self.name,
            extra=tuple(extra),
        )

    def _predictions(
        self, task: Task, request: Request, logits: Tensor | None, extra: list[dict[str, float]]
    ) -> tuple[Prediction, ...]:
        """What the model says at each position; the value of a regression goes into `extra`."""
        positions = task.positions or (None,)
        if logits is None:
            return tuple(Prediction(position=position) for position in positions)
        made = []
        for k, position in enumerate(positions):
            prediction = self._prediction(logits[k], position, request, k)
            if prediction.probability is None and prediction.index is not None:
                extra[k]["value"] = float(logits[k, prediction.index])
            made.append(prediction)
        return tuple(made)

    def _prediction(
        self, logits: Tensor, position: int | None, request: Request, k: int
    ) -> Prediction:
        asked = chosen(request.index, k)
        rival = chosen(request.against, k)
        index, label, probability = self.head.prediction(self.tokenizer, logits, asked)
        if asked is not None:
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
    )


def _require_finite(method: str, scores: Scores, logits: Tensor | None) -> None:
    """Numbers that are not finite explain nothing."""
    if logits is not None:
        require_finite(logits)
    if not bool(scores.tokens.isfinite().all()):
        raise AltiError(
            f"{method} gives scores that are not finite (nan or infinite) for this text: load the "
            "model with dtype='float32' (--dtype float32), or use another method"
        )
