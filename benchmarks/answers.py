"""What an answer of a language model costs, beside single explanations of the same length.

python benchmarks/answers.py FOLDER [--tokens 20] [--rounds 5]

FOLDER holds a causal language model, like SmolLM2-135M-Instruct. Every ratio is of medians that
were measured in one run, the two sides taking turns.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import alti

PROMPT = (
    "The Amazon rainforest covers most of the Amazon basin of South America. The basin holds seven "
    "million square kilometres, of which five and a half are covered by the rainforest. It is home "
    "to people of many nations, and to one in ten known species of the world. The name Amazon is "
    "said to come from a war"
)


def medians(first: Callable[[], object], second: Callable[[], object], rounds: int) -> float:
    """How long the first takes, in times of the second."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for job, times in zip((first, second), seconds, strict=True):
            start = time.perf_counter()
            job()
            times.append(time.perf_counter() - start)
    return statistics.median(seconds[0]) / statistics.median(seconds[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--tokens", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(2)
    model = alti.load(asked.folder, device="cpu")
    written = model.explain(PROMPT, generate=asked.tokens, method="random").source
    start = written.answer or 0
    prompt, answer = list(written.ids[:start]), list(written.ids[start:])
    print(f"{model.name}: a prompt of {len(prompt)} tokens, an answer of {len(answer)}")

    def whole(method: str, **options: object) -> object:
        return model.explain(ids=prompt, answer_ids=answer, method=method, **options)

    def single(method: str, count: int) -> object:
        ids = prompt + answer[:count]
        return model.explain(ids=ids, target=answer[count], method=method, layers=False)

    def singles(method: str) -> None:
        for count in range(len(answer)):
            single(method, count)

    last = len(answer) - 1
    for method in ("alti", "absence", "linear", "alti_logit", "input_x_gradient"):
        single(method, last)  # proofs and compiled kernels are not part of it
        rows = medians(lambda m=method: whole(m), lambda m=method: single(m, last), asked.rounds)
        total = medians(
            lambda m=method: whole(m, total=True), lambda m=method: single(m, last), asked.rounds
        )
        each = medians(lambda m=method: whole(m), lambda m=method: singles(m), 1)
        print(
            f"{method}: all tokens {rows:.2f} of one explanation, {each:.2f} of "
            f"{len(answer)} explanations; total=True {total:.2f} of one"
        )


if __name__ == "__main__":
    main()
