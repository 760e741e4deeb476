"""What `explain` does for models that are neither classifiers nor language models."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from alti._errors import UnsupportedModelError, UsageError
from alti.methods import Scores, Target, call, named
from alti.methods.proofs import check_positions, prove_once
from alti.model.assembly import RELATIVE, explained_of, require_finite_scores, single, source_of
from alti.model.attribution import Attribution
from alti.model.cuda_graphs import Recorder
from alti.model.encoded import Encoded
from alti.model.head import Head
from alti.model.image_attribution import ImageAttribution
from alti.model.images import Patches, Pixels, Questions, inputs_of, read_by
from alti.model.question import Question
from alti.model.request import Request, Task, request_of
from alti.model.results import Prediction
from alti.model.source import By, Source
from alti.model.spans import task_of
from alti.model.tokenize import Encoder
from alti.model.wrapped import OneChoice, Similarity, Spans
from alti.read.exactness import untouched
from alti.read.modules import device_of, network

SIMILARITY = "similarity"


class OtherHeads:
    """Question answering, multiple choice, the similarity of two texts, and images."""

    model: nn.Module
    name: str
    tokenizer: Any
    pooling: str
    recorder: Recorder | None

    @cached_property
    def head(self) -> Head:
        return Head.of(self.model)

    @cached_property
    def encoder(self) -> Encoder:
        try:
            kind = self.head.kind
        except UnsupportedModelError:  # explain does not take it, check does
            kind = ""
        causal, decodes = kind == "causal", kind == "seq2seq"
        return Encoder(self.model, self.tokenizer, causal=causal, decodes=decodes, name=self.name)

    @cached_property
    def subject(self) -> nn.Module:
        """What methods run: the model, or its head as one that they can explain."""
        if self.head.kind == "span":
            return Spans(network(self.model))
        if self.head.kind == "choice":
            return OneChoice(network(self.model))
        if self.head.kind == "image":
            return Patches(network(self.model))
        return self.model

    @cached_property
    def similarity(self) -> Similarity:
        return Similarity(network(self.model), self.pooling)

    # Question answering

    def answer_task(self, encoded: Encoded, request: Request) -> Task:
        """Where the answer to a question starts and ends in its context."""
        method = named(request.method)
        if method.shortens_with(request.options):
            raise UsageError(
                f"{method.name} takes tokens out of the text, which moves the answer: use "
                "occlusion with removal='mask', or consensus, absence or linear"
            )
        logits = untouched(self.subject, self.encoder.collate([encoded]).tensors).logits[0]
        return task_of(encoded, logits, request.wanted)

    # Multiple choice

    def choose(self, text: Any, choices: Sequence[str], request: Request) -> Attribution:
        """Why a choice is taken: the logit that it is given, by its own text."""
        texts = _listed(choices)
        encoded = [self.encoder.encode(text, one, truncate=request.truncate) for one in texts]
        tensors = self.encoder.collate(encoded).tensors
        logits = untouched(self.model, {k: x[None] for k, x in tensors.items()}).logits[0]
        chances = logits.double().softmax(-1)
        wanted = request.wanted
        number = int(chances.argmax()) if wanted is None else _chosen(wanted, texts)
        place = self.head.pooled(encoded[number].ids)
        task = Task(encoded[number], None if place is None else (place,))
        (result,) = self._explained([self.grouped_task(task, request)], request)
        found = single(result)
        prediction = replace(
            found.prediction,
            label=texts[number],
            index=number,
            probability=float(chances[number]),
            of="logit" if found.prediction.of not in (None, RELATIVE) else found.prediction.of,
        )
        return replace(found, prediction=prediction)

    @staticmethod
    def grouped_task(task: Task, request: Request) -> Task:
        """A task with the groups that are scored, if any are."""
        if request.groups is None:
            return task
        source, groups = source_of(task.encoded).sources(request.groups)
        return replace(task, source=source, groups=tuple(map(tuple, groups)))

    def _explained(self, tasks: list[Task], request: Request) -> Any:
        raise NotImplementedError  # as the model does it

    # Similarity

    def similar(
        self,
        question: Question,
        groups: By | None,
        method: str,
        options: dict[str, Any],
        truncate: bool,
    ) -> Attribution:
        """What makes the embeddings of two texts similar: each text while the other one stays."""
        if question.text_pair is None or not isinstance(question.text, str):
            raise UsageError(
                "target = 'similarity' compares two texts: give text and text_pair (--pair)"
            )
        if self.pooling not in ("mean", "first", "last"):
            raise UsageError(
                f"this model makes an embedding with {self.pooling}, which alti does not follow: "
                "use a model that takes the mean, the first or the last vector"
            )
        asked: dict[str, Any] = {"method": method, "options": options, "truncate": truncate}
        request = request_of(self.head, self.tokenizer, target=None, against=None, **asked)
        if not named(request.method).class_specific:
            raise UsageError(
                f"{request.method} draws how one text is mixed, and similarity is of two: use "
                "consensus, absence, linear or occlusion"
            )
        pair = [
            self.encoder.encode(text, truncate=request.truncate)
            for text in (question.text, question.text_pair)
        ]
        scores = [self._against(pair[i], pair[1 - i], request) for i in (0, 1)]
        found = self._compared(pair, scores, request)
        return found if groups is None else found.grouped(groups)

    def _against(self, text: Encoded, other: Encoded, request: Request) -> Scores:
        """A method's scores for one text, with the other one's embedding held."""
        model = self.similarity
        try:
            model.other = torch.empty(0)
            model.other = untouched(model, self.encoder.collate([other]).tensors).logits.detach()
            inputs = self.encoder.collate([text])
            place = {"first": 0, "last": len(text.ids) - 1}.get(self.pooling)
            position = None if place is None else torch.tensor([[place]], device=inputs.mask.device)
            index = torch.zeros(1, 1, dtype=torch.long, device=inputs.mask.device)
            method = named(request.method)
            scores = call(
                method, model, inputs, Target(index, position), layers=False, **request.options
            )
            if scores.output is None:
                scores = replace(scores, output=untouched(model, inputs.tensors))
            return scores
        finally:
            model.other = torch.empty(0)

    def _compared(self, pair: list[Encoded], scores: list[Scores], request: Request) -> Attribution:
        """Both texts as one result."""
        extra = {"value": float(scores[0].output.logits.detach())}
        for suffix, one in zip(("", "_pair"), scores, strict=True):
            extra |= {f"{name}{suffix}": float(x[0, 0]) for name, x in one.extra.items()}
        rows: list[Tensor] = [one.tokens[0, 0].detach().cpu() for one in scores]
        require_finite_scores(request.method, rows)
        return Attribution(
            source=_side_by_side(*map(source_of, pair)),
            prediction=Prediction(label=SIMILARITY, of=explained_of(request, scores[0])),
            scores=torch.cat(rows),
            method=request.method,
            options=request.options,
            model=self.name,
            extra=extra,
        )

    # Images

    def see(
        self, image: Any, target: Any, against: Any, groups: Any, layers: Any, **asked: Any
    ) -> ImageAttribution:
        """Which patches of an image a prediction rests on."""
        asked["layers"] = layers is not False
        place, _ = self.show(image)
        request = request_of(
            self.head, None, target=target, against=against, **self._masking(asked)
        )
        inputs = inputs_of(place)
        index = torch.tensor([request.index], device=inputs.mask.device) if request.index else None
        rival = (
            torch.tensor([request.against], device=inputs.mask.device) if request.against else None
        )
        goal = replace(read_by(self.head.pool, place), index=index, against=rival)
        method = named(request.method)
        if method.reads_model:
            why = f"where pool = {self.head.pool!r} in its entry of alti.FAMILIES says"
            prove_once(place, "positions", lambda: check_positions(place, inputs, goal, why))
        scores = call(method, place, inputs, goal, layers=request.layers, **request.options)
        output = untouched(place, inputs.tensors) if scores.output is None else scores.output
        found = self._pictured(place, scores, output.logits.detach()[0], request)
        return found if groups is None else found.grouped(groups)

    def show(self, image: Any) -> tuple[Patches, Pixels]:
        """The model with an image before it."""
        inner = network(self.model)
        pixels = Pixels(inner.config, self.tokenizer)
        assert isinstance(self.subject, Patches)
        self.subject.show(pixels.read(image).to(device_of(inner), inner.dtype))
        return self.subject, pixels

    def questions(self, image: Any, target: int) -> Questions:
        """An image for the metrics of `alti.metrics`: patches are masked, none are deleted.

        >>> asked = model.questions(image, found.target)
        >>> scores = [0.0] * sum(asked.keep) + found.scores.flatten().tolist()
        >>> alti.metrics.comprehensiveness(asked, ids=asked.ids, keep=asked.keep, scores=scores,
        ...                                mask_id=asked.mask_id)
        """
        place, _ = self.show(image)
        return Questions(place, target)

    @staticmethod
    def _masking(asked: dict[str, Any]) -> dict[str, Any]:
        """Patches cannot be deleted, and enter a model at its first layer."""
        method = named(asked["method"])
        options = dict(asked["options"])
        if "removal" in method.options:
            options.setdefault("removal", "mask")
        if "at" in method.options:
            options.setdefault("at", "embedding")
        if "baseline" in method.options:
            options.setdefault("baseline", "zero")
        if method.shortens_with(options):
            raise UsageError(
                f"{method.name} takes tokens out, and an image without a patch is none: use "
                "occlusion with removal='mask'"
            )
        return {**asked, "options": options}

    def _pictured(
        self, place: Patches, scores: Scores, logits: Tensor, request: Request
    ) -> ImageAttribution:
        asked = request.index[0] if request.index else None
        index, label, chance = self.head.prediction(None, logits, asked)
        if request.against:
            label += f" rather than {self.head.prediction(None, logits, request.against[0])[1]}"
        tokens = scores.tokens[0, 0].detach().cpu()
        require_finite_scores(request.method, [tokens])
        layers = None if scores.layers is None else scores.layers[:, 0].cpu()
        of = explained_of(request, scores)
        return ImageAttribution(
            image=Pixels(place.config, self.tokenizer).picture(place.pixels),
            prediction=Prediction(label=label, index=index, probability=chance, of=of),
            scores=tokens[place.added :].reshape(place.grid),
            special=tokens[: place.added],
            layers=layers,
            method=request.method,
            options=request.options,
            model=self.name,
            extra={name: float(values[0, 0]) for name, values in scores.extra.items()},
        )


def _listed(choices: Any) -> list[str]:
    if isinstance(choices, str) or not isinstance(choices, Sequence):
        raise UsageError(f"choices = {choices!r} is no list of texts: give two or more")
    if len(choices) < 2:
        raise UsageError(
            f"there is nothing to compare in choices = {choices!r}: give two or more (--choice)"
        )
    return list(choices)


def _chosen(target: Any, texts: list[str]) -> int:
    if isinstance(target, str) and texts.count(target) == 1:
        return texts.index(target)
    if isinstance(target, int) and not isinstance(target, bool) and 0 <= target < len(texts):
        return target
    raise UsageError(
        f"target = {target!r} is none of the choices: give one of them, or 0 to {len(texts) - 1}"
    )


def _side_by_side(first: Source, second: Source) -> Source:
    """Two texts that were read one by one, as one source."""
    moved = tuple(1 if owner == 0 else owner for owner in second.segments)
    return Source(
        texts=(first.texts[0], second.texts[0]),
        tokens=first.tokens + second.tokens,
        ids=first.ids + second.ids,
        offsets=first.offsets + second.offsets,
        segments=first.segments + moved,
        special=torch.cat([first.special, second.special]),
        cut=first.cut + second.cut,
    )
