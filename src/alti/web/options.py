"""The options of a method that a request may set."""

from typing import Any

from alti._errors import UsageError
from alti.methods import METHODS, validate

LARGEST = 1000  # value of an option: steps of integrated gradients take memory
LARGEST_OF_LINKS = 200  # the same for a method with many passes in a shared link


def checked(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options, if they are the method's own and no number is too large for a request."""
    validate(method, options)
    for name, value in options.items():
        if isinstance(value, int | float) and abs(value) > LARGEST:
            raise UsageError(f"the option {name} takes numbers up to {LARGEST} here")
        if problem := METHODS[method].declared[name].problem(value):
            raise UsageError(f"the option {name} of {method} {problem}")
    return options
