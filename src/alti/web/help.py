"""What the page says to newcomers: what a method does, and what went wrong in which field."""

import re

from alti.views.said import SO_FAR, meaning_of

RECOMMENDED = {  # by kind of head
    "causal": "absence",
    "masked": "absence",
    "encoder": "alti",
    "seq2seq": "alti",
}
FIRST_CHOICE = "consensus"  # of classifiers

PLAIN = {
    "consensus": "What speaks for and against the class, by two ways together. The first choice "
    "for classifiers.",
    "absence": "How much the class would lose if the word were not there, without running the "
    "model again. The choice for language models.",
    "dimming": "How much the class would gain from looking at a word a little more, while it "
    "looks at everything a little less.",
    "linear": "What each word adds to the class if everything nonlinear in the model stays as it "
    "is. With what biases add, the numbers add up to the class.",
    "alti_logit": "What the words pass on to each other for or against the class, followed back "
    "to the words of the text.",
    "alti": "Which words the prediction is mixed from, followed through all layers. It is the same "
    "whatever is predicted: it does not say for or against.",
    "alti_ln2": "As alti, measured at a later place in each layer.",
    "norms": "As alti, but by how long the vectors are that words pass on, not by what they "
    "change.",
    "globenc": "As norms, measured at a later place in each layer.",
    "attention": "Where the last layer looks. Attention says where a model looks, not what it "
    "takes from there.",
    "attention_rollout": "Where all layers look, one through the other. Attention says where a "
    "model looks, not what it takes from there.",
    "gradient": "How strongly a tiny change of the word would move the prediction, in whatever "
    "direction.",
    "input_x_gradient": "As gradient, times the size of the word's own vector.",
    "integrated_gradients": "As gradient, averaged on the way from an empty text to this one. "
    "Slow: about 300 passes.",
    "occlusion": "How much the probability drops when the word is taken out. Slow: the model runs "
    "once for every token.",
    "leave_one_out": "As occlusion, on a logarithmic scale. Slow: the model runs once for every "
    "token.",
    "contextcite": "The model is asked about many random parts of the text; which words make the "
    "difference? Slow: 65 passes.",
    "surrogate": "As contextcite with fewer passes, because it starts from consensus. Slow: 16 "
    "passes.",
    "random": "Chance. What every other method has to beat.",
}
BESIDE = {  # what the amounts beside a prompt mean, by their names
    "special tokens": "Tokens like <s> or <|im_start|>, which mark where a text or a message "
    "begins and ends. This is the sum of their scores; it belongs to no word of the prompt.",
    SO_FAR: "What the tokens of the answer give to those behind them, added up; it belongs to no "
    "word of the prompt.",
}
LARGE = (
    "The amounts beside the scale ({names}) belong to no word of the prompt. They can be larger "
    "than those of words: models rest much on the marks where a text begins, and what an answer "
    "says next mostly follows from what it has said."
)
_FIELDS = (  # arguments of the library, as the page calls them
    (r"\btarget and against\b", "Class and Rather than"),
    (r"\btarget = ", "Class "),
    (r"\bagainst = ", "Rather than "),
    (r"\bposition = ", "Position "),
    (r"\bwith position=", "in the field Position"),
    (r"\bor give position=", "or fill in Position"),
    (r"\btext_pair \(--pair\)", "the second text"),
    (r"\btext_pair\b", "the second text"),
    (r"\bmethod (\w+) takes (\w+) as one of", r"The option \2 of \1 takes one of"),
    (r"\bmethod (\w+) takes (\w+) as int,", r"The option \2 of \1 takes a whole number,"),
    (r"\bmethod (\w+) takes (\w+) as float,", r"The option \2 of \1 takes a number,"),
    (r"\bmethod (\w+) takes (\w+) as \w+,", r"The option \2 of \1 takes other values,"),
    (r", or cut it with truncate=True \(--truncate\)", ""),
    (r" \(answer=\)", ""),
    (r": try --dtype float32", ": the server would have to be started with --dtype float32"),
    (r"load the model with dtype='float32' \(--dtype float32\)", "start the server with --dtype "
     "float32"),
)  # fmt: skip


def beside(name: str) -> str:
    """What an amount beside a prompt means."""
    return BESIDE.get(name) or meaning_of(name)


def recommended(kind: str) -> str:
    """The method to begin with, for a kind of head."""
    return RECOMMENDED.get(kind, FIRST_CHOICE)


def in_fields(message: str, *, of_words: bool = False) -> str:
    """A message of the library in the words of the page; a language model's classes are words."""
    for argument, field in _FIELDS:
        shown = field.replace("Class", "Word") if of_words else field
        message = re.sub(argument, shown, message, flags=re.IGNORECASE)
    return message


def too_long(
    tokens: int, limit: int, model_limit: int, parts: tuple[int, int] | None = None
) -> str:
    """How long a text is, how long it may be, and what to do; `parts` are those of a pair."""
    if limit < model_limit:
        allowed = f"{limit} can be explained here"
        otherwise = "or start the server with a higher --max-tokens"
    else:
        allowed = f"the model takes {limit}"
        otherwise = "or explain its parts one by one"
    if parts is None:
        length, longer, size = f"the text has {tokens} tokens", "it", tokens
    else:
        first, second = parts
        length = f"the text has {first} tokens and the second text {second}, together {tokens}"
        longer = "the second text" if second > first else "the text"
        size = max(parts)
    share = min(100, -(-100 * (tokens - limit) // size))
    return f"{length}, and {allowed}: shorten {longer} by about {share} %, {otherwise}"
