"""What typer finds wrong in a command line, in one sentence as of everything else.

Its exceptions are in another place in every release: they are known by what they have.
"""

import re
from difflib import get_close_matches
from typing import Any

NO_SUCH = re.compile(r"No such (command|option):? ['\"]?([^\s'\"]+)")
NO_NUMBER = re.compile(r"Invalid value for '(\S+)': .*valid (integer|number)")


def is_mistake(error: Exception) -> bool:
    """Whether an exception is about the command line."""
    return hasattr(error, "format_message")


def sentence_of(error: Any) -> str:
    """What was given, the closest that exists, and where all of it is listed."""
    context = getattr(error, "ctx", None)
    path = "alti" if context is None else context.command_path
    message = error.format_message().rstrip(".")
    if found := NO_SUCH.match(message):
        message = _unknown(found[1], found[2], context)
    elif found := NO_NUMBER.match(message):
        message = _no_number(found[1], found[2], error.__cause__)
    return f"{message[:1].lower()}{message[1:]}: see {path} --help"


def _unknown(kind: str, name: str, context: Any) -> str:
    known = getattr(context.command, "commands", ())
    if kind == "option":
        known = [option for param in context.command.params for option in param.opts]
    closest = get_close_matches(name, known, n=1)
    hint = f" (did you mean {closest[0]}?)" if closest else ""
    return f"{kind} {name} does not exist{hint}"


def _no_number(option: str, kind: str, cause: Any) -> str:
    """The cause is pydantic's, and knows what was given."""
    given = [f"{each['input']} " for each in cause.errors()] if hasattr(cause, "errors") else []
    return f"{option} {''.join(given)}is no {'whole number' if kind == 'integer' else 'number'}"
