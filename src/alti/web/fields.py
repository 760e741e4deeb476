"""What a field of a request is."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a request."""

    kind: str
    what: str
    default: Any = None
    required: bool = False
