"""What is to be said of a model family: where its layers are, and in a layer its attention."""

from dataclasses import dataclass

from alti._errors import UsageError

# positions a classifier can read; last: before padding; patches: of an image, their mean;
# first_and_mean: its first token and, beside that, the mean of its patches
POOLS = ("first", "last", "eos", "mean", "patches", "first_and_mean")

# the fields of a Site that are module paths
PATHS = (
    "out", "norm", "then", "parallel", "branch_norm", "residual", "ffn_norm", "probs", "value",
    "own", "added",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Site:
    """One attention sublayer: where its parts live inside a layer.

    The sum of residual and attention branch ends in `norm` (post-norm), is read by `then`
    (pre-norm), or is only formed together with a `parallel` MLP.
    """

    out: str  # output projection W_O
    norm: str | None = None  # post-norm: the norm applied to the residual sum
    then: str | None = None  # pre-norm: the module that next reads the residual sum
    parallel: str | None = None  # parallel residual: the MLP whose output is added in the same sum
    branch_norm: str | None = None  # a norm on the branch before the sum (Gemma 2, OLMo 2)
    branch_scale: str | None = None  # config field that multiplies the branch (Granite)
    branch_gain: str | None = None  # parameter [D] that multiplies the branch (DINOv2)
    residual: str | None = None  # module whose output is the residual, if not the layer's input
    ffn_norm: str | None = None  # post-norm: the second norm, for Globenc and ALTI + LN2
    added: str | None = (
        None  # what is added to the sum next, if not `then` alone reads it (Gemma 4)
    )
    cross: bool = False  # attends to the encoder
    # Only for attention that does not pass through transformers' attention interface:
    probs: str | None = None  # the Dropout module that every probability passes through
    value: str | None = None  # the module that computes the values, heads side by side
    value_part: tuple[int, int] = (0, 1)  # which of how many parts of each head's `value` it is
    value_bias: str | None = None  # a parameter that is added to the values afterwards
    own: str | None = None  # or the module that takes the softmax and multiplies values with it

    def paths(self) -> dict[str, str]:
        """The module paths of this site by field name."""
        return {field: path for field in PATHS if (path := getattr(self, field))}


@dataclass(frozen=True, slots=True)
class Stack:
    """The layers of an encoder or a decoder, all alike, and their attention sites in order."""

    blocks: str  # path of the list of layers inside the base model; * stands for any one name
    sites: tuple[Site, ...]
    when: str | None = None  # "field" or "not field" of the config: whether the stack exists
    scale: str | None = None  # a buffer that multiplies what leaves a layer (Gemma 4)


@dataclass(frozen=True, slots=True)
class Family:
    """How a family is built, and which position its sequence classifier reads."""

    stacks: tuple[Stack, ...]
    pool: str = "first"  # one of POOLS, or "config:FIELD", which holds "cls" or "mean"
    # the MLP multiplies an activated gate with a second projection; or the config field that tells
    gated: bool | str = False
    routers: tuple[str, ...] = ()  # modules of a layer that weigh experts or gate them as a whole
    nonlinear: str = ""  # why there is no linear view of it; linear and its kin are refused
    offset_positions: bool = False  # padding_idx + 1 rows of the position table hold no token
    refuse: tuple[tuple[str, str], ...] = ()  # (config field, why it cannot be read where set)

    def __post_init__(self) -> None:
        if self.pool not in POOLS and not self.pool.startswith("config:"):
            raise UsageError(
                f"pool = {self.pool!r} is no position: give {', '.join(POOLS)} or config:FIELD"
            )
