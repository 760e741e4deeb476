"""Questions as a model reads them: tokens, sources, and which of these are evidence."""

from dataclasses import dataclass, replace

import torch

from alti._errors import UsageError
from alti.experiments.asked import Asked
from alti.methods import Inputs, Target
from alti.model.answers import of_text, without_end
from alti.model.assembly import source_of
from alti.model.encoded import Encoded
from alti.model.model import Model
from alti.model.question import Question
from alti.model.request import Request, Task
from alti.model.source import Source
from alti.model.words import Span, lines, sentences

Sources = list[tuple[Span, list[int]]]  # the characters of each, and its tokens

_FINDERS = {"sentence": sentences, "line": lines}


@dataclass(frozen=True, slots=True)
class Case:
    """A question as tokens, and its sources."""

    inputs: Inputs  # of one text
    target: Target
    sources: list[list[int]]  # the tokens of each
    removable: list[list[int]]  # what is removed: sources, or the tokens of a prompt
    known: list[int]  # the sources that are evidence
    answer: str


def case_of(model: Model, asked: Asked) -> Case:
    """Read a question; UsageError says why it cannot be used."""
    if asked.rivals is not None:
        return _next_word(model, asked, asked.rivals)
    request = Request(total=True)
    task = model.read(_question(model, asked), request)
    encoded = task.encoded
    sources = _in_documents(encoded, asked.group)
    tokens = [own for _, own in sources]
    _require_several(tokens, asked)
    inputs, target = model.batch([task], request)
    inputs = replace(inputs, groups=_groups(inputs, tokens))
    return Case(inputs, target, tokens, tokens, _known(encoded, asked, sources), _answer(encoded))


def _require_several(sources: list[list[int]], asked: Asked) -> None:
    if len(sources) < 2:
        raise UsageError(f"it has {len(sources)} sources ({asked.group}): two can be ranked")


def _question(model: Model, asked: Asked) -> Question:
    """As users ask; behind a plain text an answer begins with a space."""
    answer = asked.answer
    tokenizer = model.encoder.tokenizer
    if answer is not None and not tokenizer.chat_template:
        answer = f" {answer.lstrip()}"
    generate = asked.generate if answer is None else None
    return Question(
        text=asked.text, documents=list(asked.documents), answer=answer, generate=generate
    )


def _in_documents(encoded: Encoded, group: str) -> Sources:
    """The groups of tokens in documents alone."""
    source = source_of(encoded)
    documents = [part.span for part in encoded.parts if part.unit == "document"]
    if group == "word":
        return [
            (span, tokens)
            for span, tokens in source.words(0)
            if any(start <= span[0] and span[1] <= end for start, end in documents)
        ]
    spans = [
        (start + first, start + last)
        for start, end in documents
        for first, last in _found(encoded.text[start:end], group)
    ]
    grouped, tokens = source.grouped(spans)
    return list(zip(grouped.offsets, tokens, strict=True))


def _found(text: str, group: str) -> list[Span]:
    return _FINDERS[group](text) if group in _FINDERS else [(0, len(text))]


def _groups(inputs: Inputs, sources: list[list[int]]) -> torch.Tensor:
    """The source of each token, -1 where it is of none: [1, T]."""
    groups = torch.full_like(inputs.tensors["input_ids"], -1)
    for number, tokens in enumerate(sources):
        groups[0, tokens] = number
    return groups


def _known(encoded: Encoded, asked: Asked, sources: Sources) -> list[int]:
    """The sources that hold characters of the evidence."""
    if not asked.places:
        return []
    starts = [part.span[0] for part in encoded.parts if part.unit == "document"]
    places = [(starts[i] + start, starts[i] + end) for i, (start, end) in asked.places]
    known = [
        i
        for i, ((first, last), _) in enumerate(sources)
        if any(first < end and start < last for start, end in places)
    ]
    if not known:
        raise UsageError("its evidence is in no source")
    return known


def _answer(encoded: Encoded) -> str:
    return encoded.text_pair or ""


def _next_word(model: Model, asked: Asked, rivals: tuple[str, str]) -> Case:
    """One next token against another; the sources are the words of the prompt."""
    request = Request()
    encoded = without_end(model.read(Question(text=asked.text), request).encoded)
    good, bad = (_first_token(model, encoded, word) for word in rivals)
    if good == bad:
        raise UsageError("good and bad begin with the same token")
    source = source_of(encoded)
    words = source.words(0)
    known = [i for i, (span, _) in enumerate(words) if asked.text[slice(*span)] == asked.word]
    _require_several([own for _, own in words], asked)
    if not known:
        raise UsageError("the evidence is not a word of the prompt")
    task = Task(encoded, (len(encoded.ids) - 1,), (good,), (bad,))
    inputs, target = model.batch([task], request)
    removable = [[i] for i in _tokens(source)]
    answer = " rather than ".join(rivals)
    return Case(inputs, target, [own for _, own in words], removable, known, answer)


def _first_token(model: Model, prompt: Encoded, word: str) -> int:
    """The first token of a word behind a prompt."""
    return of_text(model.encoder, prompt, f" {word.lstrip()}").ids[0]


def _tokens(source: Source) -> list[int]:
    """The tokens of a prompt that are not special."""
    return [i for i, special in enumerate(source.special.tolist()) if not special]
