"""What the options of methods mean: a line of help for each, and the numbers that it may be."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class About:
    """What an option is for, wherever a method has one of its name."""

    help: str
    lowest: float | None = None
    highest: float | None = None
    technical: bool = False  # says how something is computed, not what


@dataclass(frozen=True, slots=True)
class Option:
    """One option of one method."""

    name: str
    default: Any
    kind: str  # integer, number, text or choice
    choices: tuple[str, ...]
    about: About

    def problem(self, value: Any) -> str:
        """What is wrong with a number, as the end of a sentence; '' if nothing is."""
        low, high = self.about.lowest, self.about.highest
        if isinstance(value, bool) or not isinstance(value, int | float):
            return ""
        if (low is None or value >= low) and (high is None or value <= high):
            return ""
        ends = [f"from {low:g}" if low is not None else "", f"to {high:g}" if high else ""]
        return f"takes a number {' '.join(filter(None, ends))}, not {value:g}"


ABOUT: dict[str, About] = {
    "p": About("The norm that distances are measured with: 1 as in the paper, or 2.", 1, 2),
    "kernel": About("Which program computes the maps; the result is the same.", technical=True),
    "of": About("The number of the class that is explained."),
    "strength": About("How bright everything is while attention is turned down.", 0.001, 1),
    "points": About("At how many brightnesses to look, instead of one.", 1, 64),
    "draws": About("How many random halves to turn up instead; 0 for none.", 0, 1000),
    "seed": About("Where random numbers begin.", 0, 1_000_000),
    "value": About("How much what a token carries counts.", 0, 1),
    "response": About("How much what attention answers counts.", 0, 1),
    "messages": About("How much what a token sends to others counts.", 0, 10),
    "rule": About("How messages between tokens are weighed; auto suits the model."),
    "aggregate": About("How the gradient of a token, a vector, becomes a number."),
    "at": About("Where gradients are taken: at word embeddings, or with their positions."),
    "steps": About("Points on the way from the empty text; more is slower and more exact.", 1),
    "baseline": About("What the empty text is made of."),
    "removal": About("How a token is taken away: left out, or masked."),
    "ablations": About("How many random parts of the text the model is asked about.", 1),
    "prior": About("The method whose scores the fit starts from."),
    "keep": About("The share of the text that each random part has.", 0.01, 0.99),
    "alpha": About("How strongly small weights are drawn to 0.", 0.000001, 10),
}
NO_HELP = About("")


def option_of(name: str, default: Any, choices: tuple[str, ...]) -> Option:
    """An option as its method declares it."""
    kinds = {int: "integer", float: "number"}
    kind = "choice" if choices else kinds.get(type(default), "text")
    return Option(name, default, kind, choices, ABOUT.get(name, NO_HELP))
