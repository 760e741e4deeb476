"""The result: which tokens a prediction rests on."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from alti._errors import AltiError, LoadError, UsageError
from alti._files import require_file, write_whole
from alti.mix.contributions import rollout
from alti.model import stored
from alti.model.words import words_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = 1  # of to_dict() and save(); a reader refuses what is newer than itself
REQUIRED = {"text", "tokens", "offsets", "scores", "special", "method"}
LOADING = (OSError, SafetensorError, KeyError, ValueError, TypeError, RuntimeError, MemoryError)
PLOTS = ("tokens", "matrix", "layers", "graph")


@dataclass(frozen=True, eq=False, kw_only=True)
class Attribution:
    """How much each token of a text counts for one prediction.

    Iterating gives (token, score) pairs in the order of the text:

    >>> for token, score in attribution: ...
    """

    text: str
    tokens: tuple[str, ...]  # as the tokenizer writes them
    offsets: tuple[
        tuple[int, int], ...
    ]  # characters of the text; (0, 0) for tokens that the tokenizer added
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
    extra: dict[str, float] = field(
        default_factory=dict
    )  # what the method says about its result as a whole

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
        ranked = (
            self.scores.masked_fill(self.special, -torch.inf)
            .argsort(descending=True, stable=True)
            .tolist()
        )
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
            raise UsageError(
                f"layer = {layer} does not exist: the model has {count}, 0 to {count - 1}"
            )
        common = bool(
            ((self.layers.sum(-1) - 1).abs() < 0.01).all()
        )  # Globenc's rows have no common sum
        return rollout(self.layers[: layer % count + 1], rescale=not common)

    def to_dict(self, *, checksum: bool = False) -> dict[str, Any]:
        """Plain lists, numbers and strings, ready for JSON; AltiError where a number is not finite.

        JSON has no nan and no infinity, and a null in their place would not say which it was. A
        dict may be changed by hand, so it carries no checksum; with checksum=True it does, and
        from_dict refuses it once a text or a number is another.
        """
        plain = self._fields()
        sums = {"checksum": stored.checksum(self, plain)} if checksum else {}
        plain |= {name: t.tolist() for name in stored.TENSORS if (t := plain[name]) is not None}
        return {"format": FORMAT, "dtype": stored.name_of(self.scores.dtype), **plain, **sums}

    def _fields(self) -> dict[str, Any]:
        """The fields by name, after a check that they can be stored."""
        try:
            stored.require(self)
        except ValueError as error:
            raise AltiError(f"this attribution cannot be stored: its {error}") from None
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """What to_dict() gave, also after a round trip through JSON.

        Types, sizes, offsets and segments are checked, and the checksum where there is one;
        LoadError for whatever cannot be right.
        """
        try:
            return cls._from_dict(plain)
        except ValueError as error:
            then = "it was not written by alti, or is damaged"
            raise LoadError(f"attribution {error}: {then}") from None

    @classmethod
    def _from_dict(cls, plain: Any) -> Self:
        if not isinstance(plain, dict) or not all(isinstance(key, str) for key in plain):
            raise ValueError("is not an object with named fields")
        plain = dict(plain)
        version, dtype = plain.pop("format", None), plain.pop("dtype", "float32")
        if type(version) is not int or version != FORMAT:
            has, reads = stored.shown(version), f"this version of alti reads {FORMAT}"
            raise LoadError(f"attribution has format {has}, and {reads}: update alti")
        if not isinstance(dtype, str) or dtype not in stored.DTYPES:
            raise ValueError(f"dtype {stored.shown(dtype)} is none of {', '.join(stored.DTYPES)}")
        checksums = [plain.pop("checksum")] if "checksum" in plain else []
        if unknown := sorted(plain.keys() - {f.name for f in fields(cls)}):
            names = ", ".join(ascii(name[:40])[1:-1] for name in unknown[:5])
            raise LoadError(f"attribution has unknown fields {names}: update alti")
        if missing := REQUIRED - plain.keys():
            raise ValueError(f"lacks {', '.join(sorted(missing))}")
        found = cls(**stored.fields_of(plain, dtype))
        stored.require(found)
        if found.scores.dtype != stored.DTYPES[dtype]:
            raise ValueError(f"scores is {found.scores.dtype}, not {dtype}")
        if checksums and checksums != [stored.checksum(found, plain)]:
            raise LoadError("attribution does not match its checksum: it was changed or damaged")
        return found

    def save(self, path: str | Path) -> None:
        """Write everything to one file: safetensors, the texts as JSON in its header. No pickle.

        The file is written as a whole and has a checksum, which load verifies. Numbers that are not
        finite are refused, as in to_dict.
        """
        plain = self._fields()
        given = {name: plain.pop(name) for name in stored.TENSORS}
        tensors = {name: t.contiguous() for name, t in given.items() if t is not None}
        texts = {"format": FORMAT, "dtype": stored.name_of(self.scores.dtype), **plain}
        # beside the JSON, where readers of format 1 that know no checksum pass over it
        metadata = {"alti": json.dumps(texts), "checksum": stored.checksum(self, plain)}
        write_whole(path, save(tensors, metadata))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what save() wrote, checked as in from_dict; files without a checksum are read."""
        require_file(path, "a file written by Attribution.save")
        try:
            with safe_open(path, "pt") as file:
                metadata = dict(file.metadata() or {})
                plain = json.loads(metadata.pop("alti"))
                sums = {"checksum": metadata.pop("checksum")} if "checksum" in metadata else {}
                names = file.keys()
                if metadata or not stored.TENSORS.keys() >= set(names):
                    raise ValueError("it holds more than alti writes")
                tensors = {name: file.get_tensor(name) for name in names}
                found = cls.from_dict({**plain, **sums, **tensors})
        except LoadError as error:
            raise LoadError(f"{path}: {error}") from None
        except LOADING as error:
            reason = " ".join(str(error).split())[:200]
            what = "is not a file written by Attribution.save"
            raise LoadError(f"{path} {what} ({reason})") from None
        return found._owned()

    def _owned(self) -> Self:
        """The same with tensors of its own: those of an open file would change with it."""
        given = {name: getattr(self, name) for name in stored.TENSORS}
        return replace(self, **{name: t.clone() for name, t in given.items() if t is not None})

    def __str__(self) -> str:
        return self.render()

    def render(self, *, words: bool = True, bars: bool = False) -> str:
        """The text for a terminal, on coloured backgrounds where it has colours; else, or with bars=True, bars."""
        from alti.views.terminal import render

        return render(self, words=words, bars=bars)

    def plot(self, kind: str = "tokens", **options: Any) -> "Figure":
        """A picture of the tokens, of a layer's matrix, of all layers or of the graph; options as in `alti.plots`.

        >>> attribution.plot("matrix", layer=2).savefig("matrix.svg")
        """
        if kind not in PLOTS:
            raise UsageError(f"plot {kind!r} does not exist: choose from {', '.join(PLOTS)}")
        drawn = getattr(import_module("alti.views.plots"), kind)(self, **options)
        figure: Figure = (drawn[0] if kind == "layers" else drawn).get_figure(root=True)
        return figure

    def to_html(self, *, words: bool = True) -> str:
        """A web page of its own; it opens with words or, words=False, with tokens, and switches between them."""
        from alti.views.html import page

        return page(self, words=words)

    def _repr_html_(self) -> str:
        from alti.views.html import STYLE, fragment

        return f"<style>{STYLE}</style>{fragment(self)}"

    def to_latex(self, *, document: bool = False, words: bool = True) -> str:
        """The paper's saliency map: a table to \\input, or a document that compiles on its own."""
        from alti.views import latex

        return (latex.document if document else latex.table)(self, words=words)
