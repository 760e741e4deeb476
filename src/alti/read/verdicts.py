"""Judges how far rebuilt blocks are from what the model computed."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from alti._errors import DecompositionError
from alti.families import Site
from alti.read.comparing import limit_of
from alti.read.cuda_capture import afterwards


@dataclass(frozen=True, slots=True)
class Place:
    """One block of one model, as messages name it."""

    family: str
    block: int
    site: Site

    def wrong(self, what: str) -> DecompositionError:
        paths = ", ".join(f"{field}={path!r}" for field, path in self.site.paths().items())
        factor = self.site.branch_scale
        scale = f", branch_scale={factor!r}" if factor else ""
        return DecompositionError(
            f"{self.family} block {self.block}: its entry in alti.FAMILIES {what}; "
            f"look at Site({paths}{scale})"
        )


class Verdict(NamedTuple):
    place: Place
    error: Tensor  # [B, n]
    limit: float
    half: bool  # the model computes in half precision

    def require(self, error: float) -> None:
        if error <= self.limit:  # not so for nan
            return
        hint = " (or load the model in float32, half precision rounds)" if self.half else ""
        raise self.place.wrong(
            f"rebuilds the block with a relative error of {error:.1e}, above {self.limit:.0e}{hint}"
        )


class Verdicts:
    """The errors of one pass. A CPU reads each at once; an accelerator would have to wait for each,

    so there they are read together at the end, or after each replay of a CUDA graph.
    """

    def __init__(self, *, at_once: bool) -> None:
        self.at_once = at_once
        self.open: list[Verdict] = []

    def add(self, place: Place, error: Tensor, dtype: torch.dtype, norms: list[nn.Module]) -> None:
        """Judge one block of a model that computes in `dtype`, with these norms on the way."""
        limit = limit_of(dtype, plain=all(type(module) is nn.LayerNorm for module in norms))
        self.open.append(Verdict(place, error, limit, dtype.itemsize < 4))
        if self.at_once or error.device.type == "cpu":
            self.conclude()

    def conclude(self) -> None:
        """Raise where an error that was not read yet is above its limit."""
        if not self.open:
            return
        verdicts = self.open
        self.open = []
        counts = [verdict.error.numel() for verdict in verdicts]
        errors = torch.cat([verdict.error.flatten() for verdict in verdicts])

        def judge() -> None:
            for verdict, error in zip(verdicts, torch.split(errors.cpu(), counts), strict=True):
                verdict.require(float(error.max()))

        afterwards(judge)
