"""Explain a sentence with the embedded model, in the terminal and as a web page: `make demo`."""

from pathlib import Path

from transformers.utils.logging import disable_progress_bar

import alti

SENTENCE = "The camera work is gorgeous, but nobody on screen seems to have read the script."


def main() -> None:
    disable_progress_bar()
    model = alti.load()
    for method in ("alti", "absence"):
        option = "" if method == "alti" else f" --method {method}"
        print(f'$ alti explain "{SENTENCE}"{option}')
        print(model.explain(SENTENCE, method=method), end="\n\n")
    errors = model.check()
    worst = f"worst error {max(errors):.1e} in float32"
    print(f"{model.name} ({model.family}): {len(errors)} blocks, {worst}: exact")
    page = Path("demo.html")
    methods = ("alti", "absence", "integrated_gradients", "attention_rollout")
    results = [model.explain(SENTENCE, method=method) for method in methods]
    page.write_text(alti.html.page(results), encoding="utf-8")
    print(f"\nFour methods side by side: open {page.resolve().as_uri()}")


if __name__ == "__main__":
    main()
