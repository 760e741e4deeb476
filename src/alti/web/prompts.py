"""The fields of requests about what a model writes: a prompt, an answer, and how it is shown."""

from typing import Any

from alti.web.fields import Field
from alti.web.settings import Refused

UNITS = ("token", "word", "sentence", "line", "document", "message")
MESSAGES = 64  # of a chat, or documents
ROLE = 40  # characters of a role

PROMPT = {
    "model": Field("string", "A name from GET /api/models; default: the first."),
    "text": Field("string", "The prompt; with documents, the question about them."),
    "chat": Field("messages", "Instead of a text: messages with a role and a content."),
    "documents": Field("texts", "Texts that the question is about."),
}
_ANSWER = {
    "answer": Field("string", "What follows the prompt."),
    "answer_ids": Field("integers", "The same as token ids, for instance those of /api/generate."),
}
_TICKET = {
    "ticket": Field("string", "A name of your choice: GET /api/queue?ticket= says where it is.")
}
_PART = {
    "part": Field("integers", "Tokens of the answer that are explained: [first, end]; all."),
}

GENERATE = {**PROMPT, "tokens": Field("integer", "How many new tokens at most.", 24), **_TICKET}
ANSWER = {
    **PROMPT,
    **_ANSWER,
    **_PART,
    "against": Field("string", "Another answer: explain why rather the first."),
    "method": Field("string", "An attribution method; alti:p=2 gives an option.", "absence"),
    "tokens": Field("boolean", "Whether to list the answer's tokens: one more pass.", True),
    "by": Field("string", f"What is coloured: {', '.join(UNITS)}.", "word"),
    **_TICKET,
}
LAYERS = {**PROMPT, **_ANSWER, **_PART, "by": ANSWER["by"], **_TICKET}
_TOKEN = {"token": Field("integer", "A token of the answer, counted from 0.", 0)}
ANSWER_HEADS = {
    **PROMPT,
    **_ANSWER,
    **_TOKEN,
    "layer": Field("integer", "Counted from 0.", required=True),
    "place": Field("integer", "A token of prompt and answer; default: the one that says `token`."),
    **_TICKET,
}
ANSWER_LENS = {**PROMPT, **_ANSWER, **_TOKEN, **_TICKET}
ALIGNMENT = {
    "model": PROMPT["model"],
    "text": Field("string", "The source.", required=True),
    **_ANSWER,
    "method": Field("string", "An attribution method; alti:p=2 gives an option.", "alti"),
    "chat": PROMPT["chat"],
    "documents": PROMPT["documents"],
    **_TICKET,
}
WHATIF = {
    **PROMPT,
    "text_pair": Field("string", "The second text, for models that read two."),
    **_ANSWER,
    **_PART,
    "target": Field("class", "A label or its index, or a token; default: what the model predicts."),
    "position": Field("integer", "The token whose prediction is meant."),
    "method": Field("string", "The method whose scores are compared.", "absence"),
    "by": Field("string", "What is left out: word, sentence, line, document or message.", "word"),
    "at": Field("integers", "One of them by a character of it: [text, character]; default: all."),
    "instead": Field("string", "A text that takes its place; default: nothing does."),
    **_TICKET,
}


def prompt_of(question: dict[str, Any]) -> dict[str, Any]:
    """A prompt as `explain` takes it."""
    text = question["text"] if question["chat"] is None else question["chat"]
    return {"text": text, "documents": question["documents"]}


def answer_of(question: dict[str, Any]) -> dict[str, Any]:
    """An answer as `explain` takes it."""
    names = ("answer", "answer_ids")
    return {name: question[name] for name in names if question[name] is not None}


def check_prompt(question: dict[str, Any]) -> None:
    """Raise where a prompt or an answer is not said once."""
    given = [name for name in ("text", "chat") if question.get(name) is not None]
    if len(given) != 1:
        raise Refused(400, "A prompt is a text or a chat: send one of them.")
    if question.get("chat") is not None and question.get("documents") is not None:
        raise Refused(400, "Documents go with a question: send it as the text, without a chat.")
    answers = sum(question.get(name) is not None for name in ("answer", "answer_ids"))
    if answers > 1 or ("answer" in question and "at" not in question and not answers):
        raise Refused(400, "An answer is a text or token ids: send one of them.")
    alone = question.get("documents") is None and question.get("chat") is None
    if "at" in question and not answers and not alone:
        raise Refused(400, "A chat or documents go with an answer: send it, too.")
    if "by" in question and question["by"] not in UNITS["at" in question :]:
        raise Refused(400, f"The text cannot be coloured so: choose one of {', '.join(UNITS)}.")


def check_texts(name: str, value: list[Any]) -> None:
    if not all(isinstance(text, str) for text in value) or not 1 <= len(value) <= MESSAGES:
        raise Refused(400, f"{name} takes one to {MESSAGES} texts.")


def check_messages(name: str, value: list[Any]) -> None:
    fits = 1 <= len(value) <= MESSAGES and all(_is_message(message) for message in value)
    if not fits:
        raise Refused(
            400,
            f'{name} takes one to {MESSAGES} messages like {{"role": "user", "content": "Hello"}}.',
        )


def check_integers(name: str, value: list[Any]) -> None:
    if not value or not all(type(number) is int and number >= 0 for number in value):
        raise Refused(400, f"{name} takes a list of whole numbers from 0 on.")


def _is_message(message: Any) -> bool:
    if not isinstance(message, dict) or set(message) != {"role", "content"}:
        return False
    texts = all(isinstance(text, str) for text in message.values())
    return texts and 0 < len(message["role"]) <= ROLE


def texts_of(question: dict[str, Any]) -> list[str]:
    """Every text of a question, whose characters count."""
    names = ("text", "text_pair", "other", "answer", "against", "instead")
    plain = [question.get(name) for name in names]
    messages = [message["content"] for message in question.get("chat") or []]
    texts = [*plain, *(question.get("documents") or []), *messages]
    return [text for text in texts if isinstance(text, str)]
