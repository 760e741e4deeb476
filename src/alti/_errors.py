"""Everything alti raises on purpose.

AltiError
├── UsageError             an argument is wrong: what was given, what was expected, what to do next
├── LoadError              a model, a tokenizer or a file could not be read or written
├── UnsupportedModelError  the family or its head cannot be read (yet)
└── DecompositionError     the parts of a block do not add up to what the model computed
"""


class AltiError(Exception):
    """One sentence for the user."""


class UsageError(AltiError, ValueError):
    """An argument is wrong."""


class LoadError(AltiError):
    """A model, a tokenizer or a file could not be read or written."""


class UnsupportedModelError(AltiError):
    """The family or its head cannot be read."""


class DecompositionError(AltiError):
    """The parts of a block do not add up to what the model computed."""


class AltiWarning(UserWarning):
    """Something a user should know, in one sentence."""
