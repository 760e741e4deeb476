"""What a language model is asked: a text, a chat, or a question with documents, as one text.

Messages, documents and the question keep their names and their characters in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerBase

from alti._errors import UsageError
from alti.model.source import Group
from alti.model.tokenize import check_text
from alti.model.words import Span

Message = Mapping[str, str]  # {"role": …, "content": …}
Chat = Sequence[Message]

TEMPLATE = "{documents}\n\n{question}"
MARK = "\ue000{}\ue001"  # of a message's place in a template: characters that no template reads


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text, and what its characters are."""

    text: str
    parts: tuple[Group, ...] = ()
    templated: bool = False  # written by a chat template: special tokens stand in it


def is_chat(text: Any) -> TypeGuard[Chat]:
    """Whether a user gave messages rather than a text."""
    listed = isinstance(text, Sequence) and not isinstance(text, str | bytes) and len(text) > 0
    return listed and all(isinstance(message, Mapping) for message in text)


def from_documents(
    question: Any,
    documents: Sequence[str],
    template: str | None,
    tokenizer: PreTrainedTokenizerBase | None,
) -> Prompt:
    """Documents, blank lines between them, and the question behind them.

    One message of a user where the tokenizer has a template for chats; else a plain text.
    """
    text, parts = _filled(question, _listed(documents), template or TEMPLATE)
    if tokenizer is None or not tokenizer.chat_template:
        return Prompt(text, tuple(parts))
    chat = from_chat([{"role": "user", "content": text}], tokenizer)
    if not chat.parts:
        raise UsageError(
            "the tokenizer's template leaves out what a user says: give the prompt as one text"
        )
    message = chat.parts[-1]
    # a template may strip a message
    shift = message.span[0] - text.index(chat.text[slice(*message.span)])
    moved = (_moved(part, shift, message.span) for part in parts)
    return Prompt(chat.text, (*chat.parts, *moved), templated=True)


def _listed(documents: Any) -> list[str]:
    if isinstance(documents, str) or not isinstance(documents, Sequence) or not documents:
        raise UsageError(f"documents = {documents!r} is no list of texts: give at least one")
    for number, document in enumerate(documents, start=1):
        check_text(f"document {number}", document)
    return list(documents)


def _filled(question: Any, documents: list[str], template: str) -> tuple[str, list[Group]]:
    """The text of a template with everything in its place."""
    if not isinstance(question, str) or not question.strip():
        raise UsageError("documents were given without a question: give it as the text")
    check_text("text", question)
    if not isinstance(template, str):
        raise UsageError(f"template is {type(template).__name__}, expected a str")
    if template.count("{documents}") != 1 or template.count("{question}") != 1:
        raise UsageError(
            f"template = {template!r} does not say where what goes: write {{documents}} and "
            "{question} in it, once each"
        )
    text = ""
    parts: list[Group] = []
    rest = template
    while rest:
        places = {name: rest.find(name) for name in ("{documents}", "{question}") if name in rest}
        name = min(places, key=lambda name: places[name], default="")
        before, _, rest = rest.partition(name) if name else (rest, "", "")
        text += before
        if name == "{documents}":
            for number, document in enumerate(documents, start=1):
                text += "\n\n" if number > 1 else ""
                parts.append(_part("document", f"document {number}", len(text), document))
                text += document
        elif name:
            parts.append(_part("question", "question", len(text), question))
            text += question
    return text, parts


def _part(unit: str, name: str, start: int, text: str) -> Group:
    return Group(name, 0, (start, start + len(text)), unit)


def _moved(part: Group, shift: int, inside: Span) -> Group:
    start, end = (min(max(border + shift, inside[0]), inside[1]) for border in part.span)
    return Group(part.name, 0, (start, end), part.unit)


def from_chat(messages: Chat, tokenizer: PreTrainedTokenizerBase | None) -> Prompt:
    """Messages through the tokenizer's own template, up to where the answer begins."""
    contents = [_content(number, message) for number, message in enumerate(messages, start=1)]
    if tokenizer is None or not tokenizer.chat_template:
        raise UsageError(
            "messages were given, and this model's tokenizer has no template for chats: give the "
            "prompt as one text"
        )
    plain = [dict(message) for message in messages]
    text = _rendered(tokenizer, plain)
    marks = [MARK.format(number) if content else "" for number, content in enumerate(contents)]
    marked = _rendered(
        tokenizer,
        [{**message, "content": mark} for message, mark in zip(plain, marks, strict=True)],
    )
    spans = _places(text, marked, marks, contents)
    counts: dict[str, int] = {}
    parts = []
    for message, span in zip(plain, spans, strict=True):
        role = message["role"]
        counts[role] = counts.get(role, 0) + 1
        if span is not None:
            parts.append(Group(f"{role} {counts[role]}", 0, span, "message"))
    return Prompt(text, tuple(parts), templated=True)


def _content(number: int, message: Message) -> str:
    role = message.get("role")
    content = message.get("content")
    if not isinstance(role, str) or not isinstance(content, str):
        raise UsageError(
            f"message {number} is {dict(message)!r}: give each a role and a content, both texts"
        )
    return content


def _rendered(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> str:
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except TemplateError as error:  # roles that a template does not know, or not in this order
        raise UsageError(f"the tokenizer's template refuses these messages: {error}") from None
    return str(text)


def _places(text: str, marked: str, marks: list[str], contents: list[str]) -> list[Span | None]:
    """Where each message stands in a chat: the same template was filled with marks to find them.

    None for a message that is empty, or that the template leaves out.
    """
    spans: list[Span | None] = [None] * len(marks)
    numbers = [number for number, mark in enumerate(marks) if mark and mark in marked]
    numbers.sort(key=lambda number: marked.index(marks[number]))
    literals = []  # what the template itself says, before each mark and behind the last
    for number in numbers:
        before, _, marked = marked.partition(marks[number])
        literals.append(before)
    literals.append(marked)
    at = len(literals[0])
    fits = text.startswith(literals[0])
    for number, behind in zip(numbers, literals[1:], strict=True):
        content = contents[number]
        forms = (content, content.strip(), content.lstrip(), content.rstrip())
        shown = next((form for form in forms if text.startswith(form + behind, at)), None)
        if not fits or shown is None:
            raise UsageError(
                "the tokenizer's template changes what the messages say, so their places cannot "
                "be told: give the prompt as one text"
            )
        spans[number] = (at, at + len(shown))
        at += len(shown) + len(behind)
    return spans
