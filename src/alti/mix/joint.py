"""Maps of an encoder–decoder over all its tokens, [source | prefix]: ALTI+, Ferrando et al."""

from typing import NamedTuple

import torch
from torch import Tensor


class Place(NamedTuple):
    """Where a block's map lies among all tokens: whose vectors it makes, and of whose."""

    rows: slice
    columns: slice

    @property
    def crosses(self) -> bool:
        return self.rows != self.columns


def joint(c: Tensor, place: Place, mask: Tensor) -> Tensor:
    """The map of one block as a map of all real tokens, `mask` [B, T]: [B, T, T].

    Tokens that the block does not touch stay what they are. The last column of cross-attention,
    its residual, is each row's own.
    """
    whole = torch.diag_embed(mask.to(c.dtype))
    if place.crosses:
        whole[:, place.rows, place.columns] = c[..., :-1]
        whole[:, place.rows, place.rows] = torch.diag_embed(c[..., -1])
    else:
        whole[:, place.rows, place.columns] = c
    return whole
