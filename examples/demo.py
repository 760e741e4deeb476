"""Explain a sentence with the embedded model, in the terminal and as a web page: `make demo`."""

from pathlib import Path

from transformers.utils.logging import disable_progress_bar

import alti

SENTENCE = "The camera work is gorgeous, but nobody on screen seems to have read the script."


def main() -> None:
    disable_progress_bar()
    model = alti.load()
    for method in ("alti", "absence"):
        print(f'$ alti explain "{SENTENCE}"' + (f" --method {method}" if method != "alti" else ""))
        print(model.explain(SENTENCE, method=method), end="\n\n")
    errors = model.check()
    print(
        f"{model.name} ({model.family}): {len(errors)} blocks, worst error {max(errors):.1e} in float32: exact"
    )
    page = Path("demo.html")
    methods = ("alti", "absence", "integrated_gradients", "attention_rollout")
    page.write_text(
        alti.html.page([model.explain(SENTENCE, method=method) for method in methods]),
        encoding="utf-8",
    )
    print(f"\nFour methods side by side: open {page.resolve().as_uri()}")


if __name__ == "__main__":
    main()
