"""Whether two versions of alti give the same scores, to the bit: every method, embedded model.

python benchmarks/same_scores.py write FILE      scores of the alti that PYTHONPATH chooses
python benchmarks/same_scores.py compare A B     what differs between two such files

One thread, float32, CPU. `git worktree add ../before COMMIT` brings another version.
"""

import sys
import warnings

import torch
from safetensors.torch import load_file, save_file

import alti

TEXTS = (
    "A gorgeous, witty, seductive movie.",
    "The acting is superb, but the plot is a tedious mess.",
    "It is not a bad film at all, and I almost loved it until the dreadful, clumsy ending.",
)
STEPS = {"integrated_gradients": {"steps": 20}}


def write(file: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    model = alti.load(device="cpu")
    scores = {}
    for method in alti.METHODS:
        options = STEPS.get(method, {})
        for number, text in enumerate(TEXTS):
            for target in (None, "negative"):
                result = model.explain(text, method=method, target=target, **options)
                scores[f"{method} {number} {target}"] = result.scores
        batch = model.explain_all(TEXTS, method=method, **options)
        scores |= {f"{method} batch {number}": one.scores for number, one in enumerate(batch)}
    save_file(scores, file)


def compare(one: str, other: str) -> None:
    before, after = load_file(one), load_file(other)
    both = before.keys() & after.keys()
    print(f"{len(both)} results in both, {len(before.keys() ^ after.keys())} in one")
    differing = [name for name in both if not torch.equal(before[name], after[name])]
    for name in sorted(differing):
        print(f"{name}: {float((before[name] - after[name]).abs().max()):.1e}")
    print("every score is the same to the bit" if not differing else f"{len(differing)} differ")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
