"""Make the output of docs/answers.md, the README's picture and that of a lens (needs chromium).

python examples/answer.py FOLDER     FOLDER: SmolLM2-135M-Instruct
"""

import sys

from pictures import IMAGES, drawn, plotted

import alti

QUESTION = "When was the Eiffel Tower finished?"
DOCUMENTS = [
    "The Eiffel Tower was finished in 1889. It was built for a world's fair in Paris, and it is "
    "330 metres tall.",
    "Big Ben is the name of a bell in London. The tower that holds it was finished in 1859.",
    "The Statue of Liberty stands in New York. It was a gift of the people of France.",
]


def main(folder: str) -> None:
    model = alti.load(folder, device="cpu")
    model.name = "SmolLM2-135M-Instruct"
    asked = {"documents": DOCUMENTS, "generate": 24, "method": "absence"}
    found = model.explain(QUESTION, **asked)
    print(found)
    print(model.explain(QUESTION, groups="sentence", **asked))
    print(model.explain(QUESTION, groups="document", total=True, **asked))
    for theme in ("light", "dark"):
        page = alti.html.page(found, theme=theme)
        drawn(page, IMAGES / f"answer-{theme}.svg", width=640)  # as narrow as its table
    print(model.explain("The capital of France is", answer=" Paris, of course."))
    said = model.explain("The capital of France is", answer=" Paris, of course.", lens=True)
    plotted(said.plot("lens"), IMAGES / "lens.svg")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
