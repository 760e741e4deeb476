"""A model with its tokenizer, ready to explain texts."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from alti import methods
from alti._errors import AltiError, DecompositionError, LoadError, UnsupportedModelError, UsageError
from alti.methods import Inputs, Scores, Target
from alti.methods.logits import logits_at, require_finite
from alti.methods.proofs import missing, prove_once
from alti.model.attribution import Attribution
from alti.model.cuda_graphs import ABLE, GRAIN, Recorder
from alti.model.fingerprints import fingerprint
from alti.model.head import Head
from alti.model.tokenize import Encoded, Encoder
from alti.read.exactness import untouched
from alti.read.linear_view import entering, require_complete
from alti.read.modules import evaluating, family_of, network, stacks_of
from alti.read.walk import check

LISTED = 40  # tokens in a message
WINDOW = 16  # batches whose texts explain_all sorts by length
SENTENCES = (
    "A clever blend of fact and fiction.",
    "Nobody expected the second half to drag quite so badly, did they?",
)

Text = str | tuple[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for, the same for every text."""

    method: str = "alti"
    index: int | None = None
    against: int | None = None
    position: int | None = None
    layers: bool = False
    truncate: bool = False
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Task:
    """A text as tokens, and the position its prediction is read from."""

    encoded: Encoded
    position: int | None


class Model:
    """A transformers model and its tokenizer.

    >>> model = alti.load("distilbert-base-uncased-finetuned-sst-2-english")
    >>> print(model.explain("A clever blend of fact and fiction."))
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: PreTrainedTokenizerBase | None,
        *,
        name: str = "",
        graphs: bool = False,
    ) -> None:
        family_of(model)
        self.model, self.tokenizer = model, tokenizer
        self.recorder = Recorder(model) if graphs else None
        self.name = name or Path(network(model).name_or_path).name
        self.family = str(network(model).config.model_type)

    @property
    def dtype(self) -> str:
        return str(network(self.model).dtype).removeprefix("torch.")

    @cached_property
    def head(self) -> Head:
        return Head.of(self.model)

    @cached_property
    def encoder(self) -> Encoder:
        if self.tokenizer is None:
            raise LoadError(
                f"{self.name or 'this model'} has no tokenizer, and text cannot be read without one"
            )
        return Encoder(self.model, self.tokenizer)

    def explain(
        self,
        text: str,
        text_pair: str | None = None,
        *,
        method: str = "alti",
        target: int | str | None = None,
        against: int | str | None = None,
        position: int | None = None,
        layers: bool = True,
        truncate: bool = False,
        **options: Any,
    ) -> Attribution:
        """Which tokens of a text the prediction rests on.

        `target` is a label or its index, or a token of the vocabulary (default: what the model predicts); `against`
        another one, to explain why rather this than that; `position` the token whose prediction is explained, in models
        that predict at every token; `options` are the method's own.
        """
        request = self._request(method, target, against, position, layers, truncate, options)
        return self._explained([self.task(text, text_pair, request)], request)[0]

    def explain_all(
        self,
        texts: Iterable[Text],
        *,
        method: str = "alti",
        target: int | str | None = None,
        against: int | str | None = None,
        position: int | None = None,
        layers: bool = False,
        truncate: bool = False,
        batch_size: int = 32,
        **options: Any,
    ) -> Iterator[Attribution]:
        """Explain many texts (or pairs), lazily and in their order, in batches of similar length.

        Texts are read as results are taken: a batch, then two, four, up to 16 batches at a time, sorted by length
        (always one with layers=True). What cannot be explained raises after the results of all texts before it.
        """
        if batch_size < 1:
            raise UsageError(f"batch_size = {batch_size} is not a number of texts: give 1 or more")
        _check_texts(texts)
        request = self._request(method, target, against, position, layers, truncate, options)
        return self._explain_all(iter(texts), request, batch_size if self.head.takes_batches else 1)

    def _explain_all(
        self, texts: Iterator[Text], request: Request, batch_size: int
    ) -> Iterator[Attribution]:
        """Windows of growing size, so that the first results come soon; sorted by length inside each."""
        largest = 1 if request.layers or batch_size == 1 else WINDOW
        batches = 1
        while True:
            tasks: list[Task] = []
            wrong: Exception | None = None
            try:
                tasks.extend(
                    self.task(*_pair(text), request) for text in islice(texts, batches * batch_size)
                )
            except Exception as error:  # raised when its turn comes
                wrong = error
            yield from self._in_order(tasks, request, batch_size)
            if wrong:
                raise wrong
            if not tasks:
                return
            batches = min(2 * batches, largest)

    def _in_order(
        self, tasks: list[Task], request: Request, batch_size: int
    ) -> Iterator[Attribution]:
        """Computed by length, given in the order of the texts."""
        by_length = sorted(range(len(tasks)), key=lambda i: len(tasks[i].encoded.ids))
        done: dict[int, Attribution] = {}
        given = 0
        for start in range(0, len(tasks), batch_size):
            batch = by_length[start : start + batch_size]
            done |= zip(batch, self._explained([tasks[i] for i in batch], request), strict=True)
            while given in done:
                yield done.pop(given)
                given += 1

    def _request(
        self,
        method: str,
        target: int | str | None,
        against: int | str | None,
        position: int | None,
        layers: bool,
        truncate: bool,
        options: dict[str, Any],
    ) -> Request:
        """Everything that can be wrong before a text is read is wrong here."""
        methods.validate(method, options)
        given = {"target": target, "against": against}
        index, rival = (
            self.head.index(self.encoder.tokenizer, value, name) for name, value in given.items()
        )
        if (
            rival is not None
            and self.head.kind in ("sequence", "token")
            and self.head.config.num_labels == 1
        ):
            raise UsageError(
                f"against = {against!r} was given, but this model has one output alone: leave it out"
            )
        if rival is not None and not methods.reads_class(method):
            raise UsageError(
                f"{method} is the same for every target, also against {against!r}: use linear or absence"
            )
        if rival is not None and rival == index:
            raise UsageError(f"target and against are both {against!r}: name two different ones")
        if target is not None and (why := methods.blind(method, options)):
            warnings.warn(
                f"{why}: to see what speaks for {target!r} use absence, linear or alti_logit",
                stacklevel=3,
            )
        return Request(method, index, rival, position, layers, truncate, options)

    def task(self, text: str, text_pair: str | None, request: Request) -> Task:
        """A text as tokens, for callers who batch by themselves."""
        encoded = self.encoder.encode(text, text_pair, truncate=request.truncate)
        mask_id = self.encoder.tokenizer.mask_token_id
        try:
            return Task(encoded, self.head.position(encoded.ids, mask_id, request.position))
        except UsageError as error:
            if self.head.kind == "sequence":
                raise
            numbered = [f"{i} {token}" for i, token in enumerate(encoded.tokens)]
            shown = numbered if len(numbered) <= LISTED else [*numbered[:LISTED], "…"]
            raise UsageError(f"{error}. The tokens: {', '.join(shown)}") from None

    def batch(self, tasks: list[Task], request: Request) -> tuple[Inputs, Target]:
        """Several texts as what a method takes."""
        multiple = (
            GRAIN if self.recorder and request.method in ABLE and self.head.takes_batches else 1
        )
        inputs = self.encoder.collate([task.encoded for task in tasks], multiple)
        places = [task.position for task in tasks if task.position is not None]
        position = torch.tensor(places, device=inputs.mask.device) if places else None

        def chosen(index: int | None) -> Tensor | None:
            return (
                None
                if index is None
                else torch.full_like(inputs.special[:, 0], index, dtype=torch.long)
            )

        return inputs, Target(chosen(request.index), position, chosen(request.against))

    def _explained(self, tasks: list[Task], request: Request) -> list[Attribution]:
        """One batch."""
        inputs, target = self.batch(tasks, request)
        with _sentence_on_memory(inputs):
            if methods.reads_model(request.method):
                self._prove_pool(tasks[0])
            asked = {"layers": request.layers, **request.options}
            run = self.recorder.run if self.recorder else partial(methods.run, model=self.model)
            scores = run(request.method, inputs=inputs, target=target, **asked)
            output = scores.output
            if output is None:
                output = untouched(self.model, inputs.tensors)
        logits = logits_at(output, target.position)
        logits = None if logits is None else logits.detach()
        _require_finite(request.method, scores, logits)
        return [
            self._attribution(
                task,
                request,
                scores.tokens[row],
                None if scores.layers is None else scores.layers[:, row],
                None if logits is None else logits[row],
                {name: float(values[row]) for name, values in scores.extra.items()},
            )
            for row, task in enumerate(tasks)
        ]

    def _attribution(
        self,
        task: Task,
        request: Request,
        tokens: Tensor,
        layers: Tensor | None,
        logits: Tensor | None,
        extra: dict[str, float],
    ) -> Attribution:
        encoded, length = task.encoded, len(task.encoded.ids)
        index, label, probability = None, None, None
        if logits is not None:
            index, label, probability = self.head.prediction(
                self.encoder.tokenizer, logits, request.index
            )
            extra |= {"value": float(logits[index])} if probability is None else {}
            if request.index is not None:
                self.head.warn_of_spaces(self.encoder.tokenizer, logits, index)
        if logits is not None and request.against is not None:
            _, rival, _ = self.head.prediction(self.encoder.tokenizer, logits, request.against)
            extra |= {"against": float(request.against)}
            label = " rather than ".join(
                name if name == name.strip() else repr(name) for name in (label or "", rival)
            )
            if index == request.against:
                warnings.warn(
                    f"the model predicts {rival!r} itself: name a target to explain against it",
                    stacklevel=4,
                )
        return Attribution(
            text=encoded.text,
            text_pair=encoded.text_pair,
            tokens=tuple(encoded.tokens),
            offsets=tuple(encoded.offsets),
            segments=tuple(encoded.segments),
            special=torch.tensor(encoded.special),
            scores=tokens[:length].cpu().clone(),
            layers=None if layers is None else layers[:, :length, :length].cpu().clone(),
            method=request.method,
            options=request.options,
            label=label,
            probability=probability,
            target=index,
            position=task.position,
            cut=encoded.cut,
            model=self.name,
            extra=extra,
        )

    def check(self) -> list[float]:
        """The worst relative error of each block on an example input (see `alti.check`).

        For a sequence classifier, also that it reads the position which its family's entry says.
        """
        if self._head_kind() == "sequence":
            self._check_pool(self.task(SENTENCES[0], None, Request(truncate=True)))
        base = network(self.model).base_model
        config = base.config
        if base.main_input_name == "pixel_values":
            size = (
                (config.image_size,) * 2
                if isinstance(config.image_size, int)
                else config.image_size
            )
            noise = torch.randn(
                1, config.num_channels, *size, generator=torch.Generator().manual_seed(0)
            )
            return check(base, {"pixel_values": noise.to(base.device, base.dtype)})
        tensors = self.encoder.collate(
            [self.encoder.encode(text, truncate=True) for text in SENTENCES]
        ).tensors
        if any(site.cross for stack, _ in stacks_of(base) for site in stack.sites):
            tensors |= {
                f"decoder_{name}": tensors[name] for name in ("input_ids", "attention_mask")
            }
        return check(base, tensors)

    def completeness(self) -> float | None:
        """How much of a prediction `alti.linear` cannot account for, relative to its largest part; None without a head.

        Too much is a DecompositionError: a norm or an activation of the model is not held constant.
        """
        kind = self._head_kind()
        if kind in (None, "encoder"):
            return None
        mask = self.encoder.tokenizer.mask_token or ""
        text = f"{SENTENCES[0]} {mask}" if kind == "masked" else SENTENCES[0]
        position = 0 if kind == "token" else None
        task = self.task(text, None, Request(position=position, truncate=True))
        inputs, target = self.batch([task], Request())
        gap = missing(self.model, inputs.tensors, target.position)
        require_complete(gap, self.model)
        return float(gap)

    def _head_kind(self) -> str | None:
        """None where explain does not take the model."""
        try:
            return self.head.kind
        except UnsupportedModelError:
            return None

    def _prove_pool(self, task: Task) -> None:
        if self.head.kind == "sequence":
            prove_once(self.model, ("pool", self.head.pool), lambda: self._check_pool(task))

    def _check_pool(self, task: Task) -> None:
        """The gradient of a classifier's logits knows which final positions they were read from."""
        tensors = self.encoder.collate([task.encoded]).tensors
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            evaluating(self.model),
            entering(
                self.model, "embedding", lambda x: x.detach().requires_grad_()
            ),  # weights may be frozen
        ):
            tensors = {name: tensor.clone() for name, tensor in tensors.items()}
            output = network(self.model)(**tensors, output_hidden_states=True, return_dict=True)
            (slope,) = torch.autograd.grad(output.logits.sum(), output.hidden_states[-1])
        read = slope[0].abs().amax(-1).nonzero().flatten().tolist()
        if read != (
            [task.position] if task.position is not None else list(range(len(task.encoded.ids)))
        ):
            raise DecompositionError(
                f"{self.family}: the classifier reads position {', '.join(map(str, read))}, not where pool = "
                f"{self.head.pool!r} in alti.FAMILIES[{self.family!r}] says"
            )

    def fingerprint(self) -> str:
        """A hash of every weight, of the settings that change results, and of the tokenizer.

        Computed at each call, not kept: weights can change in place, and a hash of before would be
        wrong. A benchmark asks once per run.
        """
        return fingerprint(self.model, self.tokenizer)

    def in_float32(self) -> "Model":
        """A copy that computes in float32."""
        return Model(deepcopy(self.model).float(), self.tokenizer, name=self.name)


def _check_texts(texts: Any) -> None:
    """Refuse what can be iterated, but not over texts in an order."""
    kind, listed = type(texts).__name__, "give a list of texts"
    if isinstance(texts, str):
        raise UsageError(f"texts is one str: {listed}, or use explain for a single one")
    if isinstance(texts, bytes | bytearray):
        raise UsageError(f"texts is {kind}: decode them and {listed}")
    if isinstance(texts, Path):
        raise UsageError(f"texts is the path {texts}: give the lines of the file")
    if hasattr(texts, "columns"):
        raise UsageError(f"texts is a table ({kind}): give one column, like table['text']")
    if isinstance(texts, Mapping):
        raise UsageError(f"texts is a {kind}: {listed}, such as its values")
    if isinstance(texts, set | frozenset):
        raise UsageError(f"texts is a {kind}, which has no order: {listed}")
    if not (isinstance(texts, Iterable) or hasattr(texts, "__getitem__")):
        raise UsageError(f"texts is {kind}: {listed}")


def _pair(text: Text) -> tuple[str, str | None]:
    if isinstance(text, str):
        return text, None
    if isinstance(text, tuple | list) and len(text) == 2:
        return text[0], text[1]
    raise UsageError(f"texts holds {text!r}: give a str, or two of them as a pair")


def _require_finite(method: str, scores: Scores, logits: Tensor | None) -> None:
    """Numbers that are not finite explain nothing."""
    if logits is not None:
        require_finite(logits)
    if not bool(scores.tokens.isfinite().all()):
        raise AltiError(
            f"{method} gives scores that are not finite (nan or infinite) for this text: load the model with "
            "dtype='float32' (--dtype float32), or use another method"
        )


@contextmanager
def _sentence_on_memory(inputs: Inputs) -> Iterator[None]:
    """Running out of memory says what to do."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        texts, tokens = inputs.special.shape
        raise AltiError(
            f"out of memory on {inputs.special.device} with {texts} texts of up to {tokens} tokens: use a smaller "
            "batch_size or shorter texts"
        ) from error


def explain(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, text: str, *args: Any, **options: Any
) -> Attribution:
    """Which tokens of a text a prediction rests on, for a model and a tokenizer that you have loaded yourself.

    Everything behind `text` is as in `Model.explain`.
    """
    return Model(model, tokenizer).explain(text, *args, **options)
