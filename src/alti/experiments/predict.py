"""Asks a model about many token sequences, in batches of similar length."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from alti._errors import UsageError
from alti.methods.logits import logits_of, probabilities
from alti.model.model import Model
from alti.read.modules import evaluating, network

LOGITS = 1 << 28  # numbers that a language model may give for a batch
TOKENS = {"cpu": 4096, "cuda": 1 << 16}  # of a batch, padding included


class Predictor:
    """What a model says to sequences of tokens; counts what that took."""

    def __init__(self, model: Model, *, tokens: int | None = None, pairs: bool = False) -> None:
        if model.head.kind == "encoder":
            raise UsageError(
                f"{model.name or 'this model'} has no head and predicts nothing: load a classifier or a language model"
            )
        self.model, self.pairs = model, pairs  # whether every sequence is a pair of texts
        self.device = network(model.model).device
        self.tokens = tokens or TOKENS.get(self.device.type, TOKENS["cpu"])
        if model.head.kind in ("masked", "causal"):  # logits of every token
            self.tokens = min(self.tokens, max(1, LOGITS // model.head.config.vocab_size))
        self.passes = 0  # forward passes made
        self.texts = 0  # sequences that went through the model

    def __call__(self, questions: Sequence[list[int]], targets: Sequence[int]) -> list[float]:
        """The probability of each target, given its sequence."""
        chosen = torch.tensor(list(targets), dtype=torch.long)
        return self._asked(
            questions, lambda some, rows: rows.gather(1, chosen[some][:, None])[:, 0]
        ).tolist()

    def probabilities(self, questions: Sequence[list[int]]) -> Tensor:
        """[n, C] on the CPU, in float64."""
        return self._asked(questions, lambda some, rows: rows)

    def _asked(
        self, questions: Sequence[list[int]], keep: Callable[[list[int], Tensor], Tensor]
    ) -> Tensor:
        """What is kept of each batch's probabilities, in the order of the questions."""
        empty = [self.model.encoder.pad]  # where every token was taken away
        asked = [question or empty for question in questions]
        rows: dict[int, Tensor] = {}
        for batch in batches(
            [len(ids) for ids in asked], self.tokens if self.model.head.takes_batches else 1
        ):
            rows |= zip(batch, keep(batch, self._batch([asked[i] for i in batch])), strict=True)
        return torch.stack([rows[i] for i in range(len(asked))]) if asked else torch.empty(0, 0)

    def _batch(self, questions: list[list[int]]) -> Tensor:
        length, head, encoder = max(map(len, questions)), self.model.head, self.model.encoder
        ids = [question + [encoder.pad] * (length - len(question)) for question in questions]
        mask = [[1] * len(question) + [0] * (length - len(question)) for question in questions]
        tensors = {"input_ids": torch.tensor(ids, device=self.device)}
        if not all(map(all, mask)):
            tensors["attention_mask"] = torch.tensor(mask, device=self.device)
        types = [
            found
            for question in ids
            if self.pairs and (found := encoder.types_of(question)) is not None
        ]
        if types:
            tensors["token_type_ids"] = torch.tensor(types, device=self.device)
        position = None
        if head.kind != "sequence":
            places = [
                head.position(question, encoder.tokenizer.mask_token_id) for question in questions
            ]
            position = torch.tensor(
                [place for place in places if place is not None], device=self.device
            )
        with torch.no_grad(), evaluating(self.model.model):
            logits = logits_of(network(self.model.model)(**tensors, return_dict=True), position)
        self.passes += 1
        self.texts += len(questions)
        return probabilities(logits.double(), head.config).cpu()


def batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Numbers of sequences that go together: sorted by length, as many as fit into `tokens` with padding."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) + 1) * lengths[i] > tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
