"""One attention block as a sum of one vector per token: what everything else is computed from."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

Rows = slice | Tensor  # neighbours, or positions [B, n]
Again = Callable[[Rows], Tensor]


@dataclass(frozen=True, slots=True)
class Block:
    """One attention block as the linear map  y_i = Σ_j T_ij + bias_i,

    T_ij = scale_i · Σ_h attn[h,i,j] · value[h,j] @ weight[h]  +  [i = j] · residual_i
    """

    attn: Tensor  # [B, H, T, S]
    value: Tensor  # [B, H, S, d]
    weight: Tensor  # [H, d, D]  W_O with every norm's linear part folded in
    scale: Tensor  # [B, T]     1 / std of the norms
    residual: Tensor  # [B, T, D]
    bias: Tensor  # [B, T, D]
    output: Tensor  # [B, T, D]  what the model really computed, never our own sum
    cross: bool = False  # sources are another sequence: the residual has a column of its own
    mask: Tensor | None = None  # [B, T]  False at padding; None: every position is real
    own: Tensor | None = None  # [B, T]  the column of each row's own token; None: row i is token i
    # Of a long text: probabilities [B, H, n, S'] of some rows, for the first S' tokens, which are
    # all that these rows see. `attn` is empty then.
    again: Again | None = None

    def rebuilt(self) -> Tensor:  # [B, T, D]
        """y_i from its parts: Σ_j T_ij + bias_i, to be compared with `output`."""
        return self.mixed().add_(self.residual)

    def mixed(self) -> Tensor:  # [B, T, D]
        """The same without the residual."""
        heads = (self.attn @ self.value).transpose(1, 2).flatten(2)  # [B, T, H·d]
        return torch.addcmul(self.bias, heads @ self.weight.flatten(0, 1), self.scale[..., None])

    def own_columns(self) -> Tensor:  # [B, T]
        if self.own is not None:
            return self.own
        batch, _, targets, _ = self.attn.shape
        return torch.arange(targets, device=self.attn.device).expand(batch, -1)

    def span(self, rows: slice) -> "Block":
        """The block of neighbouring rows, with the first sources alone where they see no others."""
        attn = self.attn[:, :, rows] if self.again is None else self.again(rows)
        return replace(
            self,
            again=None,
            attn=attn,
            value=self.value[:, :, : attn.shape[-1]],
            mask=None if self.mask is None else self.mask[:, rows],
            own=self.own_columns()[:, rows],
            scale=self.scale[:, rows],
            residual=self.residual[:, rows],
            bias=self.bias[:, rows],
            output=self.output[:, rows],
        )

    def rows(self, positions: Tensor) -> "Block":  # [B, n]
        """The block of some target rows; its `contributions` are these rows of the whole."""
        texts = torch.arange(len(positions), device=positions.device)[:, None]

        def select(x: Tensor) -> Tensor:
            if len(x) == len(positions) == 1:  # faster
                return x[:, positions[0]]
            return x[texts, positions]

        if self.again is None:
            attn = select(self.attn.transpose(1, 2)).transpose(1, 2)
        else:
            attn = self.again(positions)
        return replace(
            self,
            again=None,
            attn=attn,
            value=self.value[:, :, : attn.shape[-1]],
            mask=None if self.mask is None else select(self.mask),
            own=select(self.own_columns()),
            scale=select(self.scale),
            residual=select(self.residual),
            bias=select(self.bias),
            output=select(self.output),
        )
