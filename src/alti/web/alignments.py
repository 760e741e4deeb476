"""Answers requests about the words of a source that those of a target come from."""

from typing import Any

from alti._characters import visible
from alti._errors import UsageError
from alti.experiments.bench import parsed
from alti.model.alignment import words_of
from alti.model.attributions import Attributions
from alti.model.model import Model
from alti.views.alignments import shares
from alti.web.options import checked
from alti.web.packing import as_json


class AlignmentDesk:
    """The part of the desk for encoder–decoders."""

    def _writer(self, question: dict[str, Any]) -> Model:
        raise NotImplementedError  # the requested model, if the prompt is not too long for it

    def alignment(self, question: dict[str, Any]) -> bytes:
        """Source and target words, which of them are linked, and each target word's shares."""
        model = self._writer(question)
        if model.head.kind != "seq2seq":
            raise UsageError(f"{question['model']} does not translate: it has no source to align")
        method, options = parsed(question["method"])
        names = ("answer", "answer_ids")
        answer = {name: question[name] for name in names if question[name] is not None}
        found: Attributions = model.explain(
            question["text"], method=method, **answer, **checked(method, options)
        )
        return as_json(_sent(found))


def _sent(found: Attributions) -> dict[str, Any]:
    aligned = found.alignment()
    start = found.source.answer or 0
    parts = [
        [min(tokens) - start, max(tokens) - start + 1]
        for _, tokens in words_of(found.source, 1, spaced=False)
    ]
    return {
        "source": [visible(word) for word in aligned.names[0]],
        "target": [visible(word) for word in aligned.names[1]],
        "links": aligned.links,
        "shares": [[round(share, 4) for share in row] for row in shares(aligned)],
        "from_source": found.source_share.tolist(),
        "parts": parts,
        "method": found.method,
    }
