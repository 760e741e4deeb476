"""A model with its tokenizer, ready to explain texts."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from alti._errors import AltiError, LoadError, UnsupportedModelError, UsageError
from alti.methods import Inputs, Method, Scores, Target, call, named
from alti.methods.logits import target_logits
from alti.methods.proofs import check_example, check_positions, image_of, missing, prove_once
from alti.model.assembly import Assembly, chosen, single
from alti.model.attribution import Attribution, Attributions
from alti.model.batching import WINDOW, Text, check_texts, windows
from alti.model.cuda_graphs import GRAIN, Recorder
from alti.model.fingerprints import fingerprint
from alti.model.head import Head
from alti.model.request import Output, Outputs, Positions, Request, Task, request_of
from alti.model.tokenize import Encoder
from alti.read.exactness import untouched
from alti.read.linear_view import require_complete
from alti.read.modules import family_of, network, stacks_of

LISTED = 40  # tokens in a message
SENTENCES = (
    "A clever blend of fact and fiction.",
    "Nobody expected the second half to drag quite so badly, did they?",
)


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
        self.model = model
        self.tokenizer = tokenizer
        self.recorder = Recorder(model) if graphs else None
        self.name = name or Path(network(model).name_or_path).name
        self.family = str(network(model).config.model_type)

    @property
    def dtype(self) -> str:
        return str(network(self.model).dtype).removeprefix("torch.")

    def suits(self, method: Method) -> bool:
        """Whether a method can be run: some need a second norm in each layer, some a head."""
        sites = (site for stack, _ in stacks_of(self.model) for site in stack.sites)
        norms = not method.second_norm or any(site.ffn_norm for site in sites)
        return norms and (self.head.kind != "encoder" or not method.class_specific)

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

    @overload
    def explain(
        self,
        text: str,
        text_pair: str | None = None,
        *,
        method: str = "alti",
        target: Output | None = None,
        against: Output | None = None,
        position: int | None = None,
        positions: None = None,
        layers: bool = True,
        truncate: bool = False,
        **options: Any,
    ) -> Attribution: ...
    @overload
    def explain(
        self,
        text: str,
        text_pair: str | None = None,
        *,
        method: str = "alti",
        target: Outputs = None,
        against: Outputs = None,
        position: None = None,
        positions: Positions,
        layers: bool = True,
        truncate: bool = False,
        **options: Any,
    ) -> Attributions: ...
    def explain(
        self,
        text: str,
        text_pair: str | None = None,
        *,
        method: str = "alti",
        target: Outputs = None,
        against: Outputs = None,
        position: int | None = None,
        positions: Positions | None = None,
        layers: bool = True,
        truncate: bool = False,
        **options: Any,
    ) -> Attribution | Attributions:
        """Which tokens of a text the prediction rests on.

        `target` is a label or its index, or a token of the vocabulary (default: what the model
        predicts); `against` another one, to explain why rather this than that. Models that predict
        at every token explain the prediction at `position`, or those at several `positions` (a
        list, or "all": every token that is not special) from one forward pass; the result then is
        an `Attributions`, and `target` and `against` may be lists. `options` are the method's own.
        """
        request = self.request(
            method=method,
            target=target,
            against=against,
            position=position,
            positions=positions,
            layers=layers,
            truncate=truncate,
            options=options,
        )
        (result,) = self._explained([self.task(text, text_pair, request)], request)
        return result if positions is not None else single(result)

    def explain_all(
        self,
        texts: Iterable[Text],
        *,
        method: str = "alti",
        target: Output | None = None,
        against: Output | None = None,
        position: int | None = None,
        layers: bool = False,
        truncate: bool = False,
        batch_size: int = 32,
        **options: Any,
    ) -> Iterator[Attribution]:
        """Explain many texts (or pairs), lazily and in their order, in batches of similar length.

        Texts are read as results are taken: a batch, then two, four, up to 16 batches at a time,
        sorted by length (always one with layers=True). What cannot be explained raises after the
        results of all texts before it.
        """
        if batch_size < 1:
            raise UsageError(f"batch_size = {batch_size} is not a number of texts: give 1 or more")
        check_texts(texts)
        request = self.request(
            method=method,
            target=target,
            against=against,
            position=position,
            layers=layers,
            truncate=truncate,
            options=options,
        )
        batch_size = batch_size if self.head.takes_batches else 1
        return windows(
            iter(texts),
            lambda text, pair: self.task(text, pair, request),
            lambda tasks: list(map(single, self._explained(tasks, request))),
            batch_size=batch_size,
            largest=1 if layers or batch_size == 1 else WINDOW,
        )

    def request(self, **asked: Any) -> Request:
        """What `explain` was asked for, validated."""
        return request_of(self.head, self.encoder.tokenizer, **asked)

    def task(self, text: str, text_pair: str | None, request: Request) -> Task:
        """A text as tokens, for callers who batch by themselves."""
        encoded = self.encoder.encode(text, text_pair, truncate=request.truncate)
        mask_id = self.encoder.tokenizer.mask_token_id
        try:
            if request.positions is None:
                place = self.head.position(encoded.ids, mask_id, request.position)
                task = Task(encoded, None if place is None else (place,))
            else:
                places = self.head.positions(encoded.ids, encoded.special, request.positions)
                task = Task(encoded, places)
        except UsageError as error:
            if self.head.kind == "sequence":
                raise
            numbered = [f"{i} {token}" for i, token in enumerate(encoded.tokens)]
            shown = numbered if len(numbered) <= LISTED else [*numbered[:LISTED], "…"]
            raise UsageError(f"{error}. The tokens: {', '.join(shown)}") from None
        for name, outputs in (("target", request.index), ("against", request.against)):
            if len(outputs) not in (0, 1, task.count):
                raise UsageError(
                    f"{name} names {len(outputs)} outputs for {task.count} predictions: name one "
                    "for all of them, or one for each"
                )
        return task

    def batch(self, tasks: list[Task], request: Request) -> tuple[Inputs, Target]:
        """Several texts as what a method takes."""
        recorded = self.recorder and named(request.method).recordable and self.head.takes_batches
        inputs = self.encoder.collate([task.encoded for task in tasks], GRAIN if recorded else 1)
        places = [task.positions for task in tasks if task.positions is not None]
        device = inputs.mask.device
        position = torch.tensor(places, device=device) if places else None

        def outputs(indices: tuple[int, ...]) -> Tensor | None:
            if not indices:
                return None
            rows = [[chosen(indices, k) for k in range(task.count)] for task in tasks]
            return torch.tensor(rows, device=device)

        return inputs, Target(outputs(request.index), position, outputs(request.against))

    def _explained(self, tasks: list[Task], request: Request) -> list[Attributions]:
        """One batch."""
        method = named(request.method)
        inputs, target = self.batch(tasks, request)
        with _sentence_on_memory(inputs):
            if method.reads_model:
                self._prove_positions(tasks[0])
            scores = self._scores(request, inputs, target)
            output = scores.output
            if output is None:
                output = untouched(self.model, inputs.tensors)
        logits = None
        if getattr(output, "logits", None) is not None:
            logits = target_logits(output, target).detach()
        made = Assembly(self.head, self.encoder.tokenizer, self.name)
        return made.results(tasks, request, scores, logits)

    def _scores(self, request: Request, inputs: Inputs, target: Target) -> Scores:
        method = named(request.method)
        asked = {"layers": request.layers, **request.options}
        if self.recorder:
            return self.recorder.run(method, inputs, target, **asked)
        return call(method, self.model, inputs, target, **asked)

    def check(self) -> list[float]:
        """The worst relative error of each block on an example input (see `alti.check`).

        For a model with a head, also that it reads the position it is taken to read.
        """
        base = network(self.model).base_model
        if base.main_input_name == "pixel_values":
            return check_example(base, image_of(base))
        task = self._example()
        if task is not None:
            self._check_positions(task)
        texts = [self.encoder.encode(text, truncate=True) for text in SENTENCES]
        return check_example(base, self.encoder.collate(texts).tensors)

    def completeness(self) -> float | None:
        """How much of a prediction the linear view cannot account for; None without a head.

        Relative to its largest part. Too much is a DecompositionError: a norm or an activation of
        the model is not held constant.
        """
        task = self._example()
        if task is None:
            return None
        inputs, target = self.batch([task], Request())
        position = None if target.position is None else target.position[:, 0]
        gap = missing(self.model, inputs.tensors, position)
        require_complete(gap, self.model)
        return float(gap)

    def _example(self) -> Task | None:
        """A text that the head predicts something about; None without a head."""
        try:
            kind = self.head.kind
        except UnsupportedModelError:  # explain does not take it
            return None
        if kind == "encoder":
            return None
        mask = self.encoder.tokenizer.mask_token or ""
        text = f"{SENTENCES[0]} {mask}" if kind == "masked" else SENTENCES[0]
        request = Request(position=0 if kind == "token" else None, truncate=True)
        return self.task(text, None, request)

    def _prove_positions(self, task: Task) -> None:
        if self.head.kind != "encoder":
            several = len(task.encoded.ids) > 1  # a text of one token proves nothing about two
            what = "positions", self.head.pool, several
            prove_once(self.model, what, lambda: self._check_positions(task))

    def _check_positions(self, task: Task) -> None:
        inputs, target = self.batch([task], Request())
        why = "the one that it predicts at"
        if self.head.kind == "sequence":
            entry = f"alti.FAMILIES[{self.family!r}]"
            why = f"where pool = {self.head.pool!r} in {entry} says"
        check_positions(self.model, inputs, target, why)

    def fingerprint(self) -> str:
        """A hash of every weight, of the settings that change results, and of the tokenizer.

        Computed at each call, not kept: weights can change in place, and a hash of before would be
        wrong. A benchmark asks once per run.
        """
        return fingerprint(self.model, self.tokenizer)

    def in_float32(self) -> "Model":
        """A copy that computes in float32."""
        return Model(deepcopy(self.model).float(), self.tokenizer, name=self.name)


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
            f"out of memory on {inputs.special.device} with {texts} texts of up to {tokens} "
            "tokens: use a smaller batch_size or shorter texts"
        ) from error


def explain(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, text: str, *args: Any, **options: Any
) -> Any:
    """Which tokens of a text a prediction rests on, for a model and a tokenizer of your own.

    Everything behind `text` is as in `Model.explain`.
    """
    return Model(model, tokenizer).explain(text, *args, **options)
