"""What every view says about a result: its parts, their names, and the numbers beside them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from alti._errors import UsageError
from alti.methods import METHODS
from alti.model.attribution import Attribution
from alti.model.attributions import Attributions
from alti.model.image_attribution import ImageAttribution
from alti.model.source import Source
from alti.views.colours import Scale

Explained = Attribution | ImageAttribution
Shown = Attribution | Attributions | Sequence[Attribution | Attributions]
Result = TypeVar("Result", Attribution, Attributions)

ANSWER = 160  # characters of an answer in a headline
LABEL = 60  # characters of a label beside a colour ramp
IN_ORDER = 12  # groups that are shown in the order of the text; more are sorted
SO_FAR = "the answer so far"
NOT_KEPT = "tokens that were not kept"
OUTPUTS = {"logit": "logits", "log_prob": "log p", "probability": "probability"}


def by_words(result: Result, words: bool = True) -> Result:
    """The scores of words, unless tokens are asked for or gone."""
    return result.words() if words and result.source.by == "token" else result


def is_text(source: Source) -> bool:
    """Whether scores can be shown on the text itself; those of larger groups are listed."""
    return source.by in ("token", "word")


def is_answer(attribution: Explained) -> bool:
    """Whether an answer as a whole is explained, rather than one of its tokens."""
    if isinstance(attribution, ImageAttribution):
        return False
    return attribution.source.answer is not None and attribution.target is None


def as_shown(attribution: Attribution) -> Attribution:
    """What views show of a result: an answer's on its prompt, one token's on what is before it.

    extra["answer"] is what earlier tokens of an answer give.
    """
    start = attribution.source.answer
    if start is None:
        return attribution
    if not is_answer(attribution):
        return _before(attribution)
    extra = {**attribution.extra, "answer": float(attribution.scores[start:].sum())}
    label = _quoted(attribution.label or "")
    shown = replace(attribution, prediction=replace(attribution.prediction, label=label))
    return replace(_first(shown, start, attribution.source.texts[:1]), extra=extra)


def _before(attribution: Attribution) -> Attribution:
    """One token of an answer on the prompt and the answer so far; groups may hold later tokens."""
    source = attribution.source
    position = attribution.position
    if position is None or position + 1 >= len(source):
        return attribution
    prompt, answer = source.texts
    so_far = answer[: source.offsets[position + 1][0]]
    return _first(attribution, position + 1, (prompt, so_far) if so_far else (prompt,))


def _first(attribution: Attribution, count: int, texts: tuple[str, ...]) -> Attribution:
    """The first tokens (or groups) alone."""
    source = attribution.source
    kept = replace(
        source,
        texts=texts,
        tokens=source.tokens[:count],
        offsets=source.offsets[:count],
        special=source.special[:count],
        segments=source.segments[:count],
        ids=source.ids[:count],
        groups=source.groups[:count],
        unknown=source.unknown[:count],
        answer=None,
    )
    return replace(attribution, source=kept, scores=attribution.scores[:count], layers=None)


def whole_answer(attributions: Attributions) -> Attribution:
    """The total of an answer's tokens on its prompt."""
    return as_shown(attributions.total())


def _quoted(answer: str) -> str:
    return f"“{shortened(answer, ANSWER)}”"


def shortened(text: str, longest: int) -> str:
    """The text on one line, with … where something was cut off."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def token_of(attribution: Attribution) -> str:
    """A token of an answer with its space in front, which says where a word begins."""
    label = attribution.label or ""
    return label if label.strip(" ") else label.replace(" ", "␣")


@dataclass(frozen=True, slots=True)
class Ranked:
    """A token, word or group that a prediction rests on."""

    name: str
    score: float
    answer: bool  # of the answer so far


def strongest(view: Attribution, most: int) -> list[Ranked]:
    """The highest scores above 0; special tokens are not ranked."""
    source = view.source
    start = len(source) if source.answer is None else source.answer
    order = view.scores.masked_fill(view.special, -math.inf).argsort(descending=True, stable=True)
    best = [i for i in order.tolist() if not view.special[i] and view.scores[i] > 0][:most]
    return [Ranked(name_of(source, i), float(view.scores[i]), i >= start) for i in best]


def name_of(source: Source, i: int) -> str:
    """A token or word as it is written; a larger group by its name.

    What the model did not know is shown as it was typed, and as what it was read.
    """
    if not is_text(source):
        return source.groups[i].name
    if not source.unknown or not source.unknown[i]:
        return source.tokens[i]
    typed = source.texts[source.owners[i]][slice(*source.offsets[i])].strip()
    return f"{typed} {source.unknown[i]}"


def apart(name: str) -> tuple[str, str]:
    """What was typed, and what the model read instead of it, which stays where a name is cut."""
    typed, space, read = name.rpartition(" ")
    marked = read[:1] + read[-1:] in ("[]", "<>")
    return (typed, space + read) if typed and marked else (name, "")


def names_of(source: Source) -> list[str]:
    """The names of all tokens, words or groups."""
    return [name_of(source, i) for i in range(len(source))]


def number_of(source: Source, i: int) -> str:
    """The name of a group where it says more than its number; else the number."""
    name = source.groups[i].name
    named = any(part.name == name for part in source.parts)
    return name if named else name.rpartition(" ")[2]


def order_of(view: Attribution) -> list[int]:
    """Groups in the order of the text; the highest scores first if there are many."""
    if len(view) <= IN_ORDER:
        return list(range(len(view)))
    order: list[int] = view.scores.argsort(descending=True, stable=True).tolist()
    return order


def method_of(attribution: Attribution) -> str:
    """The method and its options, as written on the command line: alti:p=2."""
    options = (f"{name}={value}" for name, value in attribution.options.items())
    return ":".join([attribution.method, *options])


def scale_name(attribution: Explained) -> str:
    """What the numbers of a scale are: shares of 1, or logits of a class; '' if nobody knows."""
    method = METHODS.get(attribution.method)
    if method is None:
        return ""
    if method.shares_of_input:
        return "shares of 1"
    if not method.class_specific:
        return ""
    of = attribution.prediction.of or method.of(attribution.options) or ""
    if of == "relative":
        label = side_of(attribution)
        return f"relative effect on {label}" if label else "relative effect"
    if of not in OUTPUTS:
        return ""
    size = "" if method.is_signed(attribution.options) else "size of the effect on "
    label = side_of(attribution)
    return f"{size}{OUTPUTS[of]} of {label}" if label else f"{size}{OUTPUTS[of]}"


def unnamed(scale: str, label: str) -> str:
    """The name of a scale without its class, for a picture that says it elsewhere."""
    return scale.removesuffix(f" of {label}").removesuffix(f" on {label}") if label else scale


def unit_of(attribution: Attribution) -> str:
    """What scores are of where the text itself does not show it; else empty."""
    return "" if is_text(attribution.source) else f"by {attribution.source.by}"


def label_of(attribution: Explained) -> str:
    """The label, quoted if it starts or ends with a space; empty if the model has no head.

    An answer is cut to one line.
    """
    label = attribution.label or ""
    if is_answer(attribution):
        return _quoted(label)
    return label if label.strip() == label else repr(label)


def with_its_token(attribution: Attribution) -> Attribution:
    """One of several predictions, whose label says which token it is read from: Ada → B-PER."""
    if attribution.position is None:
        return attribution
    names = (attribution.tokens[attribution.position], label_of(attribution))
    label = " → ".join(filter(None, names))
    return replace(attribution, prediction=replace(attribution.prediction, label=label))


def side_of(attribution: Explained) -> str:
    """What signed scores are for or against, in few words."""
    if "answer" in attribution.extra:
        return "the answer"
    return shortened(label_of(attribution), LABEL)


def chance_of(attribution: Attribution) -> str:
    """The probability, or the value of a regression, as views show it; empty if there is none."""
    extra = attribution.extra
    if "log_prob_against" in extra:
        return f"log p = {extra['log_prob']:.2f} rather than {extra['log_prob_against']:.2f}"
    if attribution.probability is not None:
        return _chance(attribution.probability, extra.get("log_prob"))
    if "value" in extra:
        return f"= {extra['value']:.4g}"
    return ""


def _chance(probability: float, log_prob: float | None) -> str:
    """A probability; of something as long as an answer its logarithm, which stays readable."""
    if probability >= 0.0005 or log_prob is None:
        return f"p = {probability_of(probability)}"
    return f"log p = {log_prob:.1f}"


def probability_of(probability: float) -> str:
    """A probability in five characters."""
    return f"{probability:{'.3f' if probability >= 0.0005 else '.0e'}}"


MEANING = {  # what the notes below a text mean
    "special tokens": "Tokens like [CLS] and [SEP], which the tokenizer adds around every text. "
    "This is the sum of their scores, which belong to no word.",
    "line breaks": "Line breaks belong to no word.",
    "template and line breaks": "What the chat template puts around the messages, and line breaks: "
    "they belong to no word.",
    SO_FAR: "What earlier tokens of the answer give to later ones.",
    NOT_KEPT: "Only the tokens that count most were stored (top_k).",
}


def meaning_of(note: str) -> str:
    """What a note below a text means; '' if it says so itself."""
    return next((what for name, what in MEANING.items() if note.startswith(name)), "")


def special_total(attribution: Attribution) -> float:
    """The sum of the special tokens' scores, which the word view does not show."""
    return float(attribution.scores[attribution.special].sum())


def notes(attribution: Attribution, scale: Scale, *, words: bool = True) -> list[str]:
    """What a view says below a text."""
    left = outside(attribution, scale, words=words)
    return [f"{name} {scale.number(score)}" for name, score in left.items()]


def outside(attribution: Attribution, scale: Scale, *, words: bool = True) -> dict[str, float]:
    """What a view does not show on the text, and its score; nothing that is negligible."""
    least = 0.0005 * (scale.largest or 1.0)
    left = left_out(attribution) if words or not is_text(attribution.source) else []
    left.append((SO_FAR, attribution.extra.get("answer", 0.0)))
    left.append((NOT_KEPT, attribution.extra.get("left_out", 0.0)))
    return {name: score for name, score in left if abs(score) >= least}


def left_out(attribution: Attribution) -> list[tuple[str, float]]:
    """What belongs to no word, or to none of larger groups."""
    source = attribution.source
    ungrouped = by_words(attribution).extra.get("ungrouped", 0.0)
    if source.by != "token":
        return [(outside_of(source), ungrouped)]
    special = special_total(attribution)
    chat = any(part.unit == "message" for part in source.parts)
    others = "template and line breaks" if chat else "line breaks"
    return [("special tokens", special), (others, ungrouped - special)]


def outside_of(source: Source) -> str:
    """What tokens are called that are in no group."""
    return "outside of the words" if is_text(source) else "outside of the groups"


def cut_note(attribution: Attribution) -> str:
    """How much of the text was truncated; empty if nothing was."""
    return f"cut: {sum(map(len, attribution.cut))} characters" if attribution.cut else ""


def sections(shown: Shown) -> list[Attributions | list[Attribution]]:
    """What is shown one below the other: answers, and attributions of the same text together."""
    found: list[Attributions | list[Attribution]] = []
    for each in _flat(shown):
        if isinstance(each, Attributions):
            found.append(each)
            continue
        last = found[-1] if found else None
        if isinstance(last, list) and _same_text(last[0], each):
            last.append(each)
        else:
            found.append([each])
    if not found:
        raise UsageError("there is nothing to show: give at least one attribution")
    return found


def _flat(shown: Shown) -> Iterator[Attribution | Attributions]:
    """Answers as a whole; other predictions one by one."""
    for each in [shown] if isinstance(shown, Attribution | Attributions) else shown:
        if isinstance(each, Attribution):
            yield as_shown(each)
        elif each.source.answer is None:
            yield from map(with_its_token, each)
        else:
            yield each


def _same_text(first: Attribution, second: Attribution) -> bool:
    return first.source.texts == second.source.texts
