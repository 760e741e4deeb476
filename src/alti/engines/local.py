"""Work in this process, one item after the other."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Done = TypeVar("Done")


class Engine(Protocol):
    """Where work is done: `make` makes a worker, and every item goes through one."""

    def reach(self) -> None:
        """Raise where nobody is there to work: asked before anything is written."""

    def spread(
        self,
        make: Callable[[], Callable[[Item], Done]],
        items: Callable[[], Iterable[Item]],
        *,
        ordered: bool = False,
    ) -> Iterator[Done]: ...


@dataclass(frozen=True, slots=True)
class Local:
    """This process; a GPU or all cores are used by the model itself."""

    def reach(self) -> None:
        pass

    def spread(
        self,
        make: Callable[[], Callable[[Item], Done]],
        items: Callable[[], Iterable[Item]],
        *,
        ordered: bool = False,  # they always are
    ) -> Iterator[Done]:
        """What the worker makes of each item."""
        yield from map(make(), items())
