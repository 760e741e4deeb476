"""What `make test` leaves to `make slow`, so that the first run takes less than three minutes.

A slow test is marked `@slow`, or is one of the values of `@mostly_slow`, or stands in a module that
lists its `QUICK` tests and is not among them. CI and `make check` run both.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

slow = pytest.mark.slow


def mostly_slow(
    names: str | tuple[str, ...],
    values: Iterable[Any],
    *,
    quick: Collection[Any] | Callable[[Any], bool],
    **how: Any,
) -> pytest.MarkDecorator:
    """pytest.mark.parametrize, of which only the `quick` values are run by `make test`."""
    is_quick = quick if callable(quick) else quick.__contains__

    def marked(value: Any) -> Any:
        if is_quick(value):
            return value
        return pytest.param(*(value if isinstance(names, tuple) else (value,)), marks=slow)

    params = [marked(value) for value in values]
    assert any(not hasattr(param, "marks") for param in params), f"no value of {names} is quick"
    return pytest.mark.parametrize(names, params, **how)


def mark_what_is_not_quick(items: Iterable[pytest.Item]) -> None:
    """Tests of a module that lists its QUICK ones, and are not among them."""
    for item in items:
        listed = getattr(item.module, "QUICK", None)  # type: ignore[attr-defined]
        if listed is not None and item.originalname not in listed:  # type: ignore[attr-defined]
            item.add_marker(slow)
