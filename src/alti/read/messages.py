"""What attention carries from token to token at one site, and what that is worth."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

ALONE = 0.05  # attention to all others below which a token cannot be taken out


class Columns(NamedTuple):
    """What to add up for each j, over all heads and rows i, where no single message is needed.

    "slopes": Σ a_ij (g_i·v_j − g_i·z_i), as `Messages.slopes`; "effects": Σ a_ij g_i·v_j.
    """

    of: Literal["none", "slopes", "effects"] = "none"
    sources: Tensor | None = None  # [B, T]  rows of a key's own source are left out


class Receiver(NamedTuple):
    """Where messages go: to `messages` some rows at a time, or where they can be had to `sums`.

    messages(layer, prediction, messages to some rows, the gradient at these, the rows)
    sums(layer, prediction, what `columns` asks for [B, S])
    """

    messages: Callable[[int, int, "Messages", Tensor, slice], None]
    sums: Callable[[int, int, Tensor], None]
    columns: Columns | None  # None: single messages are needed


@dataclass(frozen=True, slots=True)
class Messages:
    """What attention carried from token to token at one site, its sum in the graph."""

    attn: Tensor  # [B, H, T, S]
    value: Tensor  # [B, H, S, d]
    mixed: Tensor  # [B, T, H·d]  Σ_j attn · value, what the output projection reads

    def effects(self, gradient: Tensor) -> Tensor:
        """The signed effect of j's message to i: [B, T, S].

        `gradient` [B, T, H·d] is that of the target with respect to `mixed`.
        """
        heads = self._heads(gradient)
        return ((heads @ self.value.transpose(-1, -2)) * self.attn).sum(1)

    def losses(self, gradient: Tensor, members: Tensor | None = None) -> Tensor:
        """The same for j leaving the text, so that its attention goes to the other tokens.

        Σ_j a_j v_j = z becomes (z − a_j v_j) / (1 − a_j), so a_j (v_j − z) / (1 − a_j) is lost.
        With `members` [B, S, G], 1 where a token is in a group, a whole group leaves: [B, T, G].
        """
        apart = self._apart(gradient)
        if members is None:
            shares = self.attn / (1 - self.attn).clamp_min(ALONE)
            shares = shares.masked_fill(self.attn == 1, 0)  # nothing could replace an only source
            return (apart * shares).sum(1)
        lost = (apart * self.attn) @ members[:, None]  # [B, H, T, G]
        left = 1 - self.attn @ members[:, None]
        return (lost / left.clamp_min(ALONE)).sum(1)

    def slopes(self, gradient: Tensor) -> Tensor:
        """The same to first order, for attention to j that counts a little less: a_j (v_j − z)."""
        shares = self.attn.masked_fill(self.attn == 1, 0)  # v is z there, but for rounding
        return (self._apart(gradient) * shares).sum(1)

    def _apart(self, gradient: Tensor) -> Tensor:
        """The effect of v_j − z at i, if attention were 1: [B, H, T, S]."""
        heads = self._heads(gradient)
        own = (heads * self._heads(self.mixed.detach())).sum(-1, keepdim=True)
        return heads @ self.value.transpose(-1, -2) - own

    def _heads(self, x: Tensor) -> Tensor:
        """[B, T, H·d] -> [B, H, T, d]"""
        batch, heads = self.attn.shape[:2]
        split = x.to(self.value).reshape(batch, -1, heads, self.value.shape[-1])
        return split.transpose(1, 2)
