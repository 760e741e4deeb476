"""How the help of a command is laid out: its options in panels, by what they are about."""

from typing import Any

from typer.core import TyperCommand, TyperOption

READ = "What is read"
ANSWER = "The answer of a language model or a translator"
SHOWN = "What is shown"
TRAINING = "How it is trained"
SOURCES = "Contexts, answers and alignments"
MEASURED = "How it is measured"
MANY = "Many texts"
RUNS = "Where it runs"

PANELS: dict[str, tuple[str, ...]] = {  # of options, by their parameters; in this order
    READ: (
        *("file", "pair", "documents", "chat", "audio", "choices", "no_bos", "truncate"),
        *("src_lang", "tgt_lang"),
        *("split", "validation", "text_column", "label_column", "rationale_column"),
        *("pair_column", "target_column", "id_column", "first", "sample", "seed", "mask_token"),
    ),
    ANSWER: ("answer", "generate", "temperature", "total"),
    SHOWN: (
        *("tokens", "bars", "html", "latex", "plot", "kind", "layers", "lens", "heads"),
        *("near", "spaced", "rival", "form", "as_json"),
    ),
    MANY: ("out", "top_k", "shard_rows", "batch_size"),
    RUNS: (
        *("engine", "address", "actors", "gpus", "device", "dtype", "graphs"),
        "trust_remote_code",
    ),
}
OF_COMMANDS: dict[str, dict[str, tuple[str, ...]]] = {  # where a name means something else
    "explain": {ANSWER: ("seed",), MANY: ("split", "text_column", "pair_column", "id_column")},
    "compare": {ANSWER: ("seed",)},
    "align": {ANSWER: ("seed",)},
    "bench": {
        MEASURED: ("mask", "envelope", "keep_scores"),
        SOURCES: ("group", "generate", "subsets", "distractors", "near"),
        "": ("out",),
    },
    "results": {"": ("first",)},
    "train": {
        TRAINING: ("epochs", "batch", "rate", "tokens", "seed", "saves"),
        "A new translation model": ("layers", "width", "vocabulary"),
        "": ("as_json", "trust_remote_code"),
    },
}
FEW = 8  # options that need no panels


class InPanels(TyperCommand):
    """A command whose options stand in panels in its help; those of no panel come first."""

    def __init__(self, name: str | None, **more: Any) -> None:
        super().__init__(name, **more)
        options = [param for param in self.params if isinstance(param, TyperOption)]
        if len(options) <= FEW:
            return
        for option in options:
            option.rich_help_panel = panel_of(name or "", option.name or "")
        order = [None, *panels(name or "")]
        self.params.sort(key=lambda param: order.index(getattr(param, "rich_help_panel", None)))


def panels(command: str) -> list[str]:
    """The panels of a command, in their order."""
    own = [panel for panel in OF_COMMANDS.get(command, {}) if panel and panel not in PANELS]
    *first, last = PANELS
    return [*first, *own, last]


def panel_of(command: str, option: str) -> str | None:
    """Where an option stands; None: in front of all panels."""
    for table in (OF_COMMANDS.get(command, {}), PANELS):
        for panel, names in table.items():
            if option in names:
                return panel or None
    return None
