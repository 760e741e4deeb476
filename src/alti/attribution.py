"""The result: which tokens a prediction rests on."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from alti._errors import LoadError, UsageError
from alti.mixing import rollout
from alti.pieces import words_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = 1  # of to_dict() and save(); a reader refuses what is newer than itself
TENSORS = ("scores", "special", "layers")
REQUIRED = {"text", "tokens", "offsets", "scores", "special", "method"}
PLOTS = ("tokens", "matrix", "layers", "graph")


@dataclass(frozen=True, eq=False, kw_only=True)
class Attribution:
    """How much each token of a text counts for one prediction.

    Iterating gives (token, score) pairs in the order of the text:

    >>> for token, score in attribution: ...
    """

    text: str
    tokens: tuple[str, ...]  # as the tokenizer writes them
    offsets: tuple[tuple[int, int], ...]  # characters of the text; (0, 0) for tokens that the tokenizer added
    scores: Tensor  # [T]
    special: Tensor  # [T]  True at special tokens
    method: str
    label: str | None = None  # None: the model has no head
    probability: float | None = None  # None: the label has none (a regression value)
    layers: Tensor | None = None  # [L, T, T]  C^l; row i: what token i is made of
    target: int | None = None  # index of the label
    position: int | None = None  # the token that the prediction is read from; None: the mean of all
    text_pair: str | None = None
    segments: tuple[int, ...] = ()  # 0: token of the text, 1: of text_pair, -1: added
    cut: tuple[str, ...] = ()  # what was left out of texts that were too long
    model: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, float] = field(default_factory=dict)  # what the method says about its result as a whole

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return iter(zip(self.tokens, self.scores.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> tuple[str, float]:
        return self.tokens[index], float(self.scores[index])

    def top(self, k: int = 5) -> list[tuple[str, float]]:
        """The k tokens with the highest scores, best first; special tokens are not ranked."""
        if k < 0:
            raise UsageError(f"k = {k} is not a number of tokens: give 0 or more")
        ranked = self.scores.masked_fill(self.special, -torch.inf).argsort(descending=True, stable=True).tolist()
        return [self[i] for i in ranked if not self.special[i]][:k]

    def words(self) -> Self:
        """The same scores per word: a word's score is the sum of its tokens'. Special tokens are no words.

        Words are found in the text by token offsets, so they are the same for WordPiece, BPE and SentencePiece.
        """
        words = [
            (segment, span, members)
            for segment, text in enumerate((self.text, self.text_pair))
            if text is not None
            for span, members in words_of(self, segment, text)
        ]
        texts = (self.text, self.text_pair or "")
        scores = [self.scores[members].sum() for _, _, members in words]
        return replace(
            self,
            tokens=tuple(texts[segment][slice(*span)] for segment, span, _ in words),
            offsets=tuple(span for _, span, _ in words),
            scores=torch.stack(scores) if scores else self.scores[:0],
            special=torch.zeros(len(words), dtype=torch.bool),
            segments=tuple(segment for segment, _, _ in words),
            position=None,
            layers=None,
        )

    def relevance(self, layer: int = -1) -> Tensor:
        """What every token is made of after a layer (0 is the first): R^l = C^l · … · C^1, [T, T].

        `scores` is a row of the last one, except for raw attention, which looks at the last layer alone.
        """
        if self.layers is None:
            raise UsageError(
                "this attribution has no maps per layer: explain with layers=True and a method that draws them (alti)"
            )
        count = len(self.layers)
        if not -count <= layer < count:
            raise UsageError(f"layer = {layer} does not exist: the model has {count}, 0 to {count - 1}")
        common = bool(((self.layers.sum(-1) - 1).abs() < 0.01).all())  # Globenc's rows have no common sum
        return rollout(self.layers[: layer % count + 1], rescale=not common)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, ready for JSON."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain |= {name: t.tolist() for name in TENSORS if (t := plain[name]) is not None}
        return {"format": FORMAT, "dtype": str(self.scores.dtype).removeprefix("torch."), **plain}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """What to_dict() gave, also after a round trip through JSON."""
        plain = dict(plain)
        if (version := plain.pop("format", None)) != FORMAT:
            raise LoadError(f"attribution has format {version!r}, and this version of alti reads {FORMAT}: update alti")
        dtype = getattr(torch, plain.pop("dtype", "float32"))
        known = {f.name for f in fields(cls)}
        if unknown := plain.keys() - known:
            raise LoadError(f"attribution has unknown fields {', '.join(sorted(unknown))}: update alti")
        if missing := REQUIRED - plain.keys():
            raise LoadError(
                f"attribution lacks {', '.join(sorted(missing))}: it was not written by alti, or is damaged"
            )
        for name in TENSORS:
            if (value := plain.get(name)) is not None and not isinstance(value, Tensor):
                plain[name] = torch.tensor(value, dtype=torch.bool if name == "special" else dtype)
        for name in ("tokens", "segments", "cut"):
            plain[name] = tuple(plain.get(name, ()))
        plain["offsets"] = tuple((start, end) for start, end in plain["offsets"])
        return cls(**plain)

    def save(self, path: str | Path) -> None:
        """Write everything to one file: a safetensors file whose header holds the texts as JSON. No pickle."""
        plain = {key: value for key, value in self.to_dict().items() if key not in TENSORS}
        tensors = {name: t.contiguous() for name in TENSORS if (t := getattr(self, name)) is not None}
        partial = Path(path).with_name(f"{Path(path).name}.partial")
        if not partial.parent.is_dir():
            raise UsageError(f"{path} cannot be written: there is no folder {partial.parent}")
        save_file(tensors, partial, {"alti": json.dumps(plain)})
        os.replace(partial, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what save() wrote."""
        try:
            with safe_open(path, "pt") as file:
                plain = json.loads((file.metadata() or {})["alti"])
                tensors = file.keys()
                return cls.from_dict({**plain, **{name: file.get_tensor(name) for name in tensors}})
        except FileNotFoundError:
            raise LoadError(f"{path} does not exist: give a file written by Attribution.save") from None
        except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
            raise LoadError(f"{path} is not a file written by Attribution.save ({error})") from None

    def __str__(self) -> str:
        return self.render()

    def render(self, *, words: bool = True, bars: bool = False) -> str:
        """The text for a terminal, on coloured backgrounds where it has colours; else, or with bars=True, bars."""
        from alti.terminal import render

        return render(self, words=words, bars=bars)

    def plot(self, kind: str = "tokens", **options: Any) -> "Figure":
        """A picture of the tokens, of a layer's matrix, of all layers or of the graph; options as in `alti.plots`.

        >>> attribution.plot("matrix", layer=2).savefig("matrix.svg")
        """
        if kind not in PLOTS:
            raise UsageError(f"plot {kind!r} does not exist: choose from {', '.join(PLOTS)}")
        drawn = getattr(import_module("alti.plots"), kind)(self, **options)
        figure: Figure = (drawn[0] if kind == "layers" else drawn).get_figure(root=True)
        return figure

    def to_html(self, *, words: bool = True) -> str:
        """A web page of its own; it opens with words or, words=False, with tokens, and switches between them."""
        from alti.html import page

        return page(self, words=words)

    def _repr_html_(self) -> str:
        from alti.html import STYLE, fragment

        return f"<style>{STYLE}</style>{fragment(self)}"

    def to_latex(self, *, document: bool = False, words: bool = True) -> str:
        """The paper's saliency map: a table to \\input, or a document that compiles on its own."""
        from alti import latex

        return (latex.document if document else latex.table)(self, words=words)
