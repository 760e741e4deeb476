"""A model with its tokenizer, ready to explain texts."""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from torch import nn
from transformers import PreTrainedTokenizerBase

from alti._characters import visible
from alti._errors import UsageError
from alti.methods import Inputs, Method, Target
from alti.model.answers import Generation
from alti.model.assembly import single
from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.model.batching import (
    WINDOW,
    Text,
    check_texts,
    is_listed,
    one_each,
    question_of,
    windows,
)
from alti.model.cuda_graphs import Recorder
from alti.model.examples import check, completeness
from alti.model.fingerprints import fingerprint
from alti.model.head_maps import WithHeads
from alti.model.image_attribution import ImageAttribution
from alti.model.images import each_image, require_image_alone
from alti.model.lens import require_lens
from alti.model.other_heads import SIMILARITY, OtherHeads
from alti.model.parts import Part
from alti.model.prompt import Chat
from alti.model.question import Question, read
from alti.model.request import (
    Output,
    Outputs,
    Positions,
    Request,
    Task,
    request_of,
)
from alti.model.results import Prediction
from alti.model.running import batch_of, contrast_of, results_of
from alti.model.source import By
from alti.model.tasks import keeps_layers, task_of, with_maps
from alti.model.tokenize import Bos
from alti.read.modules import family_of, network, require_readable, stacks_of

if TYPE_CHECKING:
    from PIL.Image import Image


class Model(OtherHeads, WithHeads):
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
        require_readable(model)
        self.model = model
        self.tokenizer = tokenizer
        self.pooling = "mean"  # of an encoder's vectors, where the similarity of texts is asked for
        self.recorder = Recorder(model) if graphs else None
        self.name = name or Path(network(model).name_or_path).name
        self.family = str(network(model).config.model_type)

    @property
    def dtype(self) -> str:
        return str(network(self.model).dtype).removeprefix("torch.")

    def __repr__(self) -> str:
        return f"<Model {visible(self.name)}: {visible(self.family)}, {self.dtype}>"

    def suits(self, method: Method) -> bool:
        """Whether a method can be run: some need a second norm in each layer, a head, a library."""
        sites = (site for stack, _ in stacks_of(self.model) for site in stack.sites)
        norms = not method.second_norm or any(site.ffn_norm for site in sites)
        return (
            method.is_installed
            and norms
            and (self.head.kind != "encoder" or not method.class_specific)
        )

    @overload
    def explain(
        self,
        text: str | Chat | None = None,
        text_pair: str | None = None,
        *,
        ids: Any = None,
        documents: Sequence[str] | None = None,
        choices: Sequence[str] | None = None,
        template: str | None = None,
        method: str = "alti",
        target: Output | None = None,
        against: Output | None = None,
        position: int | None = None,
        positions: None = None,
        answer: None = None,
        answer_ids: None = None,
        generate: None = None,
        groups: By | None = None,
        bos: Bos = "auto",
        layers: bool | None = None,
        lens: bool = False,
        truncate: bool = False,
        **options: Any,
    ) -> Attribution: ...
    @overload
    def explain(self, text: "Image", *, method: str = "alti", **asked: Any) -> ImageAttribution: ...
    @overload
    def explain(
        self, text: Any = None, text_pair: Any = None, *, total: Literal[True], **asked: Any
    ) -> Attribution: ...
    @overload
    def explain(
        self, text: Any = None, *, answer: str, against: str, **asked: Any
    ) -> Attribution: ...
    @overload
    def explain(self, text: Any = None, *, part: Part, **asked: Any) -> Attribution: ...
    @overload
    def explain(self, text: Any = None, text_pair: Any = None, **asked: Any) -> Attributions: ...
    def explain(
        self,
        text: "str | Chat | Image | None" = None,
        text_pair: str | None = None,
        *,
        ids: Any = None,
        audio: Any = None,
        rate: int | None = None,
        features: Any = None,
        documents: Sequence[str] | None = None,
        choices: Sequence[str] | None = None,
        template: str | None = None,
        method: str = "alti",
        target: Outputs = None,
        against: Outputs = None,
        position: int | None = None,
        positions: Positions | None = None,
        answer: str | None = None,
        answer_ids: Any = None,
        generate: Generation | None = None,
        part: Part | None = None,
        total: bool = False,
        groups: By | None = None,
        bos: Bos = "auto",
        layers: bool | None = None,
        lens: bool = False,
        truncate: bool = False,
        **options: Any,
    ) -> Attribution | Attributions | ImageAttribution:
        """Which tokens of a text a prediction rests on.

        A vision model takes a PIL image, or the path of one, and gives an `ImageAttribution`.
        The text is a str (and a second one, for models that read two), a chat (a list of messages),
        a question about `documents`, or `ids`: exactly these tokens. What is explained is

        - what the model predicts, or `target`: a label, its index, or a token of the vocabulary;
          `against` another one: why rather this than that; of a model that answers a question
          about `text_pair`, where its answer starts and ends, or those of the answer `target`; of
          one that compares `choices`, the one it takes; of an encoder, with `target`="similarity",
          what makes the embeddings of `text` and `text_pair` similar;
        - in models that predict at every token, the prediction at `position`; or those at several
          `positions` (a list, or "all": every token that is not special), from one forward pass;
        - of a language model, or an encoder–decoder (the text is its source; of a speech model
          `audio` with its `rate`, or `features`), each token of an `answer`: a text, `answer_ids`,
          or what the model writes itself (`generate`: a number of tokens, or transformers'
          generation options). `against` is another answer then, and what counts the logarithms of
          their probabilities. `part` = (first, end) are some of its tokens, explained together.

        Several predictions are an `Attributions`; with `total` they are explained together, as one
        `Attribution`. `groups` are scored instead of tokens: words, sentences, lines, documents,
        messages or spans, as in `Attribution.grouped`; a method that can is given them as its
        sources, the scores of any other are added up. `bos` says whether a first token is put in
        front of a text whose tokenizer adds none. `layers` keeps the map of every layer (by default
        not for answers and groups). `lens` keeps what a causal or masked language model would have
        said after each layer: `Attribution.lens`. `options` are the method's own.

        >>> print(model.explain("A clever film.", method="consensus"))
        """
        if lens:
            require_lens(self.head, total=total)
        sound = {"audio": audio, "rate": rate, "features": features}
        reply: Any = {"answer": answer, "answer_ids": answer_ids, "generate": generate}
        question = Question(
            text=text,  # type: ignore[arg-type]  # images go another way
            text_pair=text_pair,
            ids=ids,
            documents=documents,
            choices=choices,
            template=template,
            part=part,
            **sound,
            **reply,
        )
        at: Any = {"position": position, "positions": positions}
        if self.head.kind == "image":
            require_image_alone(question, **at, total=total, bos=bos, truncate=truncate)
            return self.see(text, target, against, groups, layers, method=method, options=options)
        question.check(self.head)
        if self.head.kind == "encoder" and target == SIMILARITY:
            return self.similar(question, groups, method=method, options=options, truncate=truncate)
        rest: Any = {"lens": lens, "truncate": truncate, "bos": bos, "groups": groups}
        request = self.request(
            method=method,
            target=target,
            against=None if question.has_answer else against,
            **at,
            total=total or part is not None,
            layers=keeps_layers(question, groups) if layers is None else layers,
            options=options,
            **rest,
        )
        if choices is not None:
            return self.choose(text, choices, request)
        if question.has_answer and against is not None:
            return contrast_of(self, question, against, request)
        task = self.read(question, request)
        (result,) = self._explained([task], with_maps(self.model, request, task, layers))
        return result if self._is_several(question, request) else single(result)

    def explain_all(
        self,
        texts: Iterable[Text],
        *,
        method: str = "alti",
        target: Outputs = None,
        against: Outputs = None,
        position: int | Sequence[int] | None = None,
        rate: int | None = None,
        answer: str | Sequence[str] | None = None,
        generate: Generation | None = None,
        total: bool = False,
        groups: By | None = None,
        bos: Bos = "auto",
        layers: bool = False,
        lens: bool = False,
        truncate: bool = False,
        batch_size: int = 32,
        **options: Any,
    ) -> Iterator[Any]:
        """Explain many texts (pairs, chats), lazily and in order, in batches of similar length.

        `target`, `against`, `position` and `answer` may be lists: one for each text. Texts are
        read as results are taken: a batch, then two, four, up to 16 batches at a time, sorted by
        length (always one with layers=True). What cannot be explained raises after the results of
        all texts before it. A result is what `explain` returns. A model that hears takes sounds for
        texts: numbers, `rate` of them a second, or (without it) features; one that sees images, one
        after the other.

        >>> texts = ["A clever film.", "A dull film."]
        >>> [found.label for found in model.explain_all(texts, batch_size=64)]
        """
        if not isinstance(batch_size, int) or batch_size < 1:
            raise UsageError(f"batch_size = {batch_size} is not a number of texts: give 1 or more")
        check_texts(texts)
        answers = answer is not None or generate is not None
        if answers and against is not None:
            raise UsageError("one answer against another goes text by text: use explain")
        rest: Any = {"lens": lens, "truncate": truncate, "bos": bos, "groups": groups}
        named = {"target": target, "against": against, "position": position}
        pairs = one_each(texts, {**named, "answer": answer})
        asked: dict[str, Any] = {"method": method, "total": total, "layers": layers, **rest}
        if self.head.kind == "image":
            asked |= {"rate": rate, "generate": generate, **options}
            return each_image(self.explain, pairs, asked)
        request = partial(self.request, options=options, **asked)
        common = None  # where it is, what is wrong is wrong before the first text
        if not any(map(is_listed, named.values())):
            common = request(**named)

        def read(pair: tuple[Any, dict[str, Any]]) -> Task:
            text, own = pair
            reply = {"rate": rate, "answer": own.pop("answer"), "generate": generate}
            question = question_of(text, hears=self.head.hears, **reply)
            question.check(self.head)
            return self.read(question, common or request(**own))

        shared = common or request(**dict.fromkeys(named))
        batch_size = batch_size if self.head.takes_batches else 1
        several = (answers or self.head.kind == "span") and not total
        each = (lambda result: result) if several else single
        return windows(
            pairs,
            read,
            lambda tasks: [each(result) for result in self._explained(tasks, shared)],
            batch_size=batch_size,
            largest=1 if layers or batch_size == 1 else WINDOW,
        )

    def predict(
        self,
        texts: Iterable[Text],
        *,
        bos: Bos = "auto",
        truncate: bool = False,
        batch_size: int = 32,
    ) -> list[Prediction]:
        """What the model says about each text (pair, chat), as `explain` would explain it.

        A regression has a `value` in the place of a probability.

        >>> [one.label for one in model.predict(["A clever film.", "A dull film."])]
        """
        if self.head.kind == "encoder":
            raise UsageError(f"{self.name or 'this model'} has no head and predicts nothing")
        asked: dict[str, Any] = {"bos": bos, "truncate": truncate, "batch_size": batch_size}
        # random scores cost nothing; the answer to a question is a start and an end together
        found = self.explain_all(texts, method="random", total=self.head.kind == "span", **asked)
        return [_predicted(one) for one in found]

    def request(self, **asked: Any) -> Request:
        """What `explain` was asked for, validated."""
        return request_of(self.head, self.tokenizer, **asked)

    def task(self, text: str, text_pair: str | None, request: Request) -> Task:
        """A text as tokens, for callers who batch by themselves."""
        return self.read(Question(text=text, text_pair=text_pair), request)

    def read(self, question: Question, request: Request) -> Task:
        """A question as tokens, with the positions that its predictions are read from."""
        return task_of(self, question, request)

    def written(self, *, bos: Bos = "auto", **asked: Any) -> list[int]:
        """The tokens that a model writes, asked as in `explain` with generate=."""
        question = Question(**asked)
        question.check(self.head)
        encoded = read(question, self.model, self.encoder, bos=bos)
        return encoded.ids[encoded.answer :]

    def batch(self, tasks: list[Task], request: Request) -> tuple[Inputs, Target]:
        """Several texts as what a method takes."""
        return batch_of(self, tasks, request)

    def _explained(self, tasks: list[Task], request: Request) -> list[Attributions]:
        """One batch."""
        return results_of(self, tasks, request)

    def _is_several(self, question: Question, request: Request) -> bool:
        """Whether several predictions are explained, one by one."""
        several = question.has_answer or request.positions is not None or self.head.kind == "span"
        return several and not request.total

    def check(self) -> list[float]:
        """The worst relative error of each block on an example input (see `alti.check`).

        For a model with a head, also that it reads the position it is taken to read.
        """
        return check(self)

    def completeness(self) -> float | None:
        """How much of a prediction the linear view cannot account for; None without a head.

        Relative to its largest part. Too much is a DecompositionError: a norm or an activation of
        the model is not held constant.
        """
        return completeness(self)

    def fingerprint(self) -> str:
        """A hash of every weight, of the settings that change results, and of the tokenizer.

        Computed at each call, not kept: weights can change in place, and a hash of before would be
        wrong. A benchmark asks once per run.
        """
        return fingerprint(self.model, self.tokenizer)

    def in_float32(self) -> "Model":
        """A copy that computes in float32."""
        return Model(deepcopy(self.model).float(), self.tokenizer, name=self.name)


def _predicted(found: Attribution) -> Prediction:
    """The prediction of a result, whoever explains it."""
    return replace(found.prediction, of=None)
