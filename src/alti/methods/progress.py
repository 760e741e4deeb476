"""How far a method is that runs the model many times, and how many texts it runs together."""

from torch import Tensor

from alti._progress import Callback, report, watching

__all__ = ["Callback", "at_once", "report", "watching"]

TOKENS = 4096  # of a batch on a CPU


def at_once(mask: Tensor, most: int) -> int:
    """How many texts like those of a mask [B, T] go through the model together.

    On a CPU large batches save nothing, and small ones tell sooner how far they are.
    """
    return most if mask.is_cuda else max(1, min(most, TOKENS // mask.shape[1]))
