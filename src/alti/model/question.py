"""One text as a user gives it, with or without an answer, and how it is read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from alti._errors import UsageError
from alti.model import targets
from alti.model.answers import Generation, answered, generated, ids_of, of_ids, of_text
from alti.model.encoded import Encoded
from alti.model.head import Head
from alti.model.prompt import Chat, Prompt, from_chat, from_documents, is_chat
from alti.model.sounds import encode_sound, require_sound
from alti.model.tokenize import Bos, Encoder


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A text, a pair, a chat, a question about documents, or ids; and the answer to it."""

    text: str | Chat | None = None
    text_pair: str | None = None
    ids: Any = None  # instead of a text
    audio: Any = None  # instead of a text, for models that hear: numbers, so many a second
    rate: int | None = None  # how many
    features: Any = None  # of a sound, as a feature extractor gives them
    documents: Sequence[str] | None = None
    choices: Sequence[str] | None = None  # of a multiple-choice model
    template: str | None = None  # where documents and question go
    answer: str | None = None
    answer_ids: Any = None
    generate: Generation | None = None
    part: Any = None  # of the answer: the first of its tokens that is explained, and where to stop

    @property
    def has_answer(self) -> bool:
        return any(x is not None for x in (self.answer, self.answer_ids, self.generate))

    def check(self, head: Head) -> None:
        """Raise for what does not go together."""
        if head.hears:
            require_sound(self)
        else:
            self._check_text()
        named = ("answer", "answer_ids", "generate")
        answers = [name for name in named if getattr(self, name) is not None]
        if len(answers) > 1:
            raise UsageError(f"{' and '.join(answers)} were given: one of them says what follows")
        if answers and head.kind not in ("causal", "seq2seq"):
            raise UsageError(
                f"{answers[0]} was given, and this model writes no text: load a causal language "
                "model (AutoModelForCausalLM) or an encoder–decoder (AutoModelForSeq2SeqLM)"
            )
        if self.part is not None and not answers:
            raise UsageError("part = (first, end) is of an answer, and there is none: give answer=")
        if head.kind == "seq2seq":
            self._check_target(answers)
        if head.kind == "span" and self.text_pair is None:
            raise UsageError(
                "this model answers a question from a text: give the question and, as text_pair "
                "(--pair), the text"
            )
        if (head.kind == "choice") != (self.choices is not None):
            raise UsageError(
                "this model compares choices, and none were given: give them as choices= (--choice)"
                if self.choices is None
                else "choices (--choice) were given, and this model compares none: leave them out"
            )
        if self.choices is not None and not isinstance(self.text, str):
            raise UsageError("choices go with one text: give it as a str")
        if self.template is not None and self.documents is None:
            raise UsageError("template= says where documents go, and there are none: give both")
        plain = self.text is not None and not is_chat(self.text)
        for name in ("text_pair", "documents"):
            if getattr(self, name) is not None and not plain:
                what = "ids=" if self.ids is not None else "a chat" if self.text else "a sound"
                raise UsageError(f"{name} was given with {what}: it goes with one text")
        if self.text_pair is not None and (self.documents is not None or answers):
            raise UsageError("text_pair was given with documents or an answer: leave it out")

    def _check_text(self) -> None:
        if self.audio is not None or self.features is not None or self.rate is not None:
            raise UsageError("a sound was given to a model that reads text: give a text or ids=")
        if (self.text is None) == (self.ids is None):
            given = "both were given" if self.ids is not None else "neither was given"
            raise UsageError(f"explain takes a text or ids=, and {given}: give one of them")

    def _check_target(self, answers: list[str]) -> None:
        """Raise where it is not said what an encoder–decoder writes."""
        if self.text_pair is not None:
            raise UsageError(
                "text_pair was given to an encoder–decoder, which reads one text and writes "
                "another: give what it writes as answer="
            )
        if not answers:
            raise UsageError(
                "an encoder–decoder is explained token by token of what it writes: give that as "
                "answer= or answer_ids=, or let it write with generate="
            )


def read(
    question: Question, model: nn.Module, encoder: Encoder, *, truncate: bool = False, bos: Bos
) -> Encoded:
    """A question as tokens, the answer behind them."""
    if truncate and question.has_answer and not encoder.decodes:
        raise UsageError(
            "truncate = True cuts the end of a prompt, where its answer begins: shorten it instead"
        )
    encoded = read_prompt(question, encoder, truncate=truncate, bos=bos)
    if encoder.decodes:
        return targets.read(model, encoder, encoded, question)
    if not question.has_answer:
        return encoded
    if question.answer is not None:
        return answered(encoder, encoded, of_text(encoder, encoded, question.answer))
    if question.answer_ids is not None:
        ids, _ = ids_of(question.answer_ids, "answer_ids")
    else:
        ids = generated(model, encoder, encoded, question.generate)
    return answered(encoder, encoded, of_ids(encoder, encoded, ids))


def read_prompt(
    question: Question, encoder: Encoder, *, truncate: bool = False, bos: Bos = "auto"
) -> Encoded:
    """A question as tokens, without its answer."""
    if question.audio is not None or question.features is not None:
        return encode_sound(encoder, question)
    if question.ids is not None:
        return encoder.encode_ids(*ids_of(question.ids, "ids"))
    text: Any = question.text
    prompt = Prompt("")
    chats = encoder.given if encoder.causal else None  # only language models read chats
    if question.documents is not None:
        prompt = from_documents(text, question.documents, question.template, chats)
    elif is_chat(text):
        prompt = from_chat(text, chats)
    if not prompt.text:
        return encoder.encode(text, question.text_pair, truncate=truncate, bos=bos)
    encoded = encoder.encode(prompt.text, truncate=truncate, bos=bos, templated=prompt.templated)
    return replace(encoded, parts=prompt.parts)
