"""A model with its tokenizer, ready to explain texts."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from alti import methods
from alti._errors import AltiError, LoadError, UsageError
from alti.attribution import Attribution
from alti.blocks import check
from alti.encoding import Encoded, collate, encode
from alti.methods import Target
from alti.structure import family_of, network
from alti.targets import head_of, logits_at, read_position, read_prediction, target_index

WINDOW = 16  # batches whose texts explain_all sorts by length
SENTENCES = ("A clever blend of fact and fiction.", "Nobody expected the second half to drag quite so badly, did they?")


@dataclass(frozen=True, slots=True)
class _Request:
    """What the user asked for, the same for every text."""

    method: str
    index: int | None
    position: int | None
    layers: bool
    options: dict[str, Any]


class Model:
    """A transformers model and its tokenizer.

    >>> model = alti.load("distilbert-base-uncased-finetuned-sst-2-english")
    >>> print(model.explain("A clever blend of fact and fiction."))
    """

    def __init__(self, model: nn.Module, tokenizer: PreTrainedTokenizerBase | None, *, name: str = "") -> None:
        family_of(model)
        self.model, self._tokenizer = model, tokenizer
        self.name = name or Path(network(model).name_or_path).name

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        if self._tokenizer is None:
            raise LoadError(f"{self.name or 'this model'} has no tokenizer, and text cannot be read without one")
        return self._tokenizer

    @property
    def family(self) -> str:
        return str(network(self.model).config.model_type)

    @property
    def dtype(self) -> str:
        return str(network(self.model).dtype).removeprefix("torch.")

    def in_float32(self) -> "Model":
        """A copy that computes in float32."""
        return Model(deepcopy(self.model).float(), self._tokenizer, name=self.name)

    def explain(
        self,
        text: str,
        text_pair: str | None = None,
        *,
        method: str = "alti",
        target: int | str | None = None,
        position: int | None = None,
        layers: bool = True,
        truncate: bool = False,
        **options: Any,
    ) -> Attribution:
        """Which tokens of a text the prediction rests on.

        `target` is a label or its index, or a token of the vocabulary (default: what the model predicts); `position`
        the token whose prediction is explained, in models that predict at every token; `options` are the method's own.
        """
        request = self._request(method, target, position, layers, options)
        return self._explained([self._read(text, text_pair, request, truncate)], request)[0]

    def explain_all(
        self,
        texts: Iterable[str | tuple[str, str]],
        *,
        method: str = "alti",
        target: int | str | None = None,
        position: int | None = None,
        layers: bool = False,
        truncate: bool = False,
        batch_size: int = 32,
        **options: Any,
    ) -> Iterator[Attribution]:
        """Explain many texts (or pairs), lazily and in their order, in batches of similar length.

        Texts are read as results are taken: one batch at a time with layers=True, else 16, sorted by length. A text
        that cannot be explained raises when its turn comes, after the results of all before it.
        """
        if batch_size < 1:
            raise UsageError(f"batch_size = {batch_size} is not a number of texts: give 1 or more")
        if isinstance(texts, str):
            raise UsageError("texts is one str: give a list of texts, or use explain for a single one")
        request = self._request(method, target, position, layers, options)
        config = network(self.model).config
        if head_of(self.model) == "sequence" and family_of(self.model).pool == "last" and config.pad_token_id is None:
            batch_size = 1  # the model could not tell where a text ends
        return self._explain_all(iter(texts), request, batch_size, truncate)

    def _explain_all(
        self, texts: Iterator[str | tuple[str, str]], request: _Request, batch_size: int, truncate: bool
    ) -> Iterator[Attribution]:
        size = batch_size * (1 if request.layers else WINDOW)
        while window := list(islice(texts, size)):
            read: list[_Text] = []
            wrong: AltiError | None = None
            for text in window:
                first, second = (text, None) if isinstance(text, str) else text
                try:
                    read.append(self._read(first, second, request, truncate))
                except AltiError as error:
                    wrong = error
                    break
            yield from self._in_order(read, request, batch_size)
            if wrong:
                raise wrong

    def _in_order(self, texts: list["_Text"], request: _Request, batch_size: int) -> list[Attribution]:
        by_length = sorted(range(len(texts)), key=lambda i: len(texts[i].encoded.ids))
        done: dict[int, Attribution] = {}
        for start in range(0, len(texts), batch_size):
            batch = by_length[start : start + batch_size]
            done |= zip(batch, self._explained([texts[i] for i in batch], request), strict=True)
        return [done[i] for i in range(len(texts))]

    def _request(
        self, method: str, target: int | str | None, position: int | None, layers: bool, options: dict[str, Any]
    ) -> _Request:
        head_of(self.model)
        methods.validate(method, options)
        return _Request(method, target_index(self.model, self.tokenizer, target), position, layers, options)

    def _read(self, text: str, text_pair: str | None, request: _Request, truncate: bool) -> "_Text":
        encoded = encode(self.model, self.tokenizer, text, text_pair, truncate=truncate)
        return _Text(encoded, read_position(self.model, encoded, self.tokenizer.mask_token_id, request.position))

    def _explained(self, texts: list["_Text"], request: _Request) -> list[Attribution]:
        """One batch."""
        device = network(self.model).device
        inputs = collate(self.model, self.tokenizer, [text.encoded for text in texts])
        positions = [text.position for text in texts if text.position is not None]
        position = torch.tensor(positions, device=device) if positions else None
        index = None if request.index is None else torch.full((len(texts),), request.index, device=device)
        try:
            scores = methods.run(
                request.method,
                self.model,
                inputs,
                Target(index, position),
                layers=request.layers,
                **request.options,
            )
            logits = logits_at(self._forward(inputs.tensors) if scores.output is None else scores.output, position)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
                raise
            shape = tuple(inputs.special.shape)
            raise AltiError(
                f"out of memory on {device} with {shape[0]} texts of up to {shape[1]} tokens: use a smaller batch_size "
                "or shorter texts"
            ) from error
        layers = [None] * len(texts) if scores.layers is None else scores.layers.unbind(1)
        return [
            self._attribution(text, request, tokens, None if logits is None else logits[row], maps)
            for row, (text, tokens, maps) in enumerate(zip(texts, scores.tokens, layers, strict=True))
        ]

    def _forward(self, tensors: dict[str, Tensor]) -> Any:
        with torch.no_grad():
            return self.model(**tensors)

    def _attribution(
        self, text: "_Text", request: _Request, tokens: Tensor, logits: Tensor | None, layers: Tensor | None
    ) -> Attribution:
        encoded, length = text.encoded, len(text.encoded.ids)
        index, label, probability = None, None, None
        if logits is not None:
            index, label, probability = read_prediction(self.model, self.tokenizer, logits, request.index)
        return Attribution(
            text=encoded.text,
            tokens=tuple(encoded.tokens),
            offsets=tuple(encoded.offsets),
            scores=tokens[:length].cpu().clone(),
            special=torch.tensor(encoded.special),
            method=request.method,
            label=label,
            probability=probability,
            layers=None if layers is None else layers[:, :length, :length].cpu().clone(),
            target=index,
            position=text.position,
            text_pair=encoded.text_pair,
            segments=tuple(encoded.segments),
            cut=encoded.cut,
            model=self.name,
            options=request.options,
        )

    def check(self) -> list[float]:
        """The worst relative error of each block on an example input: see `alti.check`."""
        base = network(self.model).base_model
        return check(base, self._example(base))

    def _example(self, base: nn.Module) -> dict[str, Tensor]:
        config = network(base).config
        if network(base).main_input_name == "pixel_values":
            size = config.image_size if isinstance(config.image_size, int) else config.image_size[0]
            noise = torch.randn(1, config.num_channels, size, size, generator=torch.Generator().manual_seed(0))
            return {"pixel_values": noise.to(network(base).device, network(base).dtype)}
        texts = [encode(self.model, self.tokenizer, sentence, truncate=True) for sentence in SENTENCES]
        tensors = collate(self.model, self.tokenizer, texts).tensors
        if config.is_encoder_decoder:
            tensors = {k: tensors[k] for k in ("input_ids", "attention_mask")}
            tensors |= {f"decoder_{name}": tensor for name, tensor in tensors.items()}
        return tensors


@dataclass(frozen=True, slots=True)
class _Text:
    """A text as tokens, and the position its prediction is read from."""

    encoded: Encoded
    position: int | None


def explain(model: nn.Module, tokenizer: PreTrainedTokenizerBase, text: str, *args: Any, **options: Any) -> Attribution:
    """Which tokens of a text a prediction rests on, for a model and a tokenizer that you have loaded yourself.

    Everything behind `text` is as in `Model.explain`.
    """
    return Model(model, tokenizer).explain(text, *args, **options)
