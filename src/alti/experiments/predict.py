"""Asks a model about many token sequences, in batches of similar length."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from alti._errors import UsageError
from alti.methods.logits import logits_of, probabilities
from alti.model.model import Model
from alti.read.modules import evaluating, network

LOGITS = 1 << 28  # the most logits that a language model may return for a batch
TOKENS = {"cpu": 4096, "cuda": 1 << 16}  # per batch, padding included


class Predictor:
    """A model's probabilities for sequences of tokens; counts its forward passes."""

    def __init__(self, model: Model, *, tokens: int | None = None, pairs: bool = False) -> None:
        name = model.name or "this model"
        if model.head.kind == "encoder":
            raise UsageError(
                f"{name} has no head and predicts nothing: load a classifier or a language model"
            )
        if model.head.kind in ("span", "choice"):
            raise UsageError(
                f"{name} takes parts of a text for its outputs, which no table of labels has: load "
                "a classifier or a language model"
            )
        self.model = model
        self.pairs = pairs  # whether every sequence is a pair of texts
        self.device = network(model.model).device
        self.tokens = tokens or TOKENS.get(self.device.type, TOKENS["cpu"])
        if model.head.kind in ("masked", "causal"):  # logits of every token
            self.tokens = min(self.tokens, max(1, LOGITS // model.head.config.vocab_size))
        self.passes = 0  # forward passes made
        self.texts = 0  # sequences that went through the model

    def __call__(self, questions: Sequence[list[int]], targets: Sequence[int]) -> list[float]:
        """The probability of each target, given its sequence."""
        chosen = torch.tensor(list(targets), dtype=torch.long)

        def keep(batch: list[int], probabilities: Tensor) -> Tensor:
            return probabilities.gather(1, chosen[batch][:, None])[:, 0]

        return self._answers(questions, keep).tolist()

    def probabilities(self, questions: Sequence[list[int]]) -> Tensor:
        """[n, C] on the CPU, in float64."""
        return self._answers(questions, lambda batch, probabilities: probabilities)

    def _answers(
        self, questions: Sequence[list[int]], keep: Callable[[list[int], Tensor], Tensor]
    ) -> Tensor:
        """What is kept of each batch's probabilities, in the order of the questions."""
        if not questions:
            return torch.empty(0, 0)
        empty = [self.model.encoder.pad]  # for a question without tokens
        sequences = [question or empty for question in questions]
        tokens = self.tokens if self.model.head.takes_batches else 1
        rows: dict[int, Tensor] = {}
        for batch in batches([len(ids) for ids in sequences], tokens):
            answers = keep(batch, self._batch([sequences[i] for i in batch]))
            rows |= zip(batch, answers, strict=True)
        return torch.stack([rows[i] for i in range(len(sequences))])

    def _batch(self, questions: list[list[int]]) -> Tensor:
        """Probabilities [B, C] of sequences that go through the model together."""
        inputs = self._inputs(questions)
        position = self._position(questions)
        with torch.no_grad(), evaluating(self.model.model):
            logits = logits_of(network(self.model.model)(**inputs, return_dict=True), position)
        self.passes += 1
        self.texts += len(questions)
        return probabilities(logits.double(), self.model.head.config).cpu()

    def _inputs(self, questions: list[list[int]]) -> dict[str, Tensor]:
        """Padded on the right; a mask and token types only where they are needed."""
        encoder = self.model.encoder
        length = max(map(len, questions))
        ids = [question + [encoder.pad] * (length - len(question)) for question in questions]
        inputs = {"input_ids": torch.tensor(ids, device=self.device)}
        mask = [[1] * len(question) + [0] * (length - len(question)) for question in questions]
        if not all(map(all, mask)):
            inputs["attention_mask"] = torch.tensor(mask, device=self.device)
        types = [encoder.types_of(sequence) for sequence in ids] if self.pairs else []
        if types and None not in types:
            inputs["token_type_ids"] = torch.tensor(types, device=self.device)
        return inputs

    def _position(self, questions: list[list[int]]) -> Tensor | None:
        """Where the head reads each sequence [B]; None if it reads the whole sequence."""
        head = self.model.head
        if head.kind == "sequence":
            return None
        mask_id = self.model.encoder.mask_id
        positions = [head.position(question, mask_id) for question in questions]
        return torch.tensor([i for i in positions if i is not None], device=self.device)


def batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Numbers of sequences that go together: of similar length, as many as fit into `tokens`."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) + 1) * lengths[i] > tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
