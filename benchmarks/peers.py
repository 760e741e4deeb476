"""The first lines that a user writes in five tools, for the same five jobs, run where they run.

    python benchmarks/peers.py MODELS alti=PYTHON captum=PYTHON …
    python benchmarks/peers.py page

The first command runs them (benchmarks/peers/results.json), the second writes docs/peers.md.

MODELS is a folder with three others: CLASSIFIER (the embedded model will do), LANGUAGE_MODEL
(SmolLM2-135M-Instruct) and TRANSLATOR (any encoder–decoder with a fast tokenizer). PYTHON is the
interpreter of an environment that has the tool: docs/peers.md says how they were made.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "peers"
PAGE = Path(__file__).parents[1] / "docs" / "peers.md"
RESULTS = HERE / "results.json"
MODELS = ("CLASSIFIER", "LANGUAGE_MODEL", "TRANSLATOR")
TEXTS = ("A clever film.", "A dull film.", "Not a bad plot at all.", "Nobody could call it funny.")
LIMIT = 600  # seconds
TOOLS = {  # as they are called, and what comes with them
    "alti": "alti",
    "captum": "Captum",
    "inseq": "Inseq",
    "transformers_interpret": "transformers-interpret",
    "shap": "SHAP",
}
JOBS = {
    "1_classifier": "Which words made a classifier say this?",
    "2_answer": "Which words of the prompt does an answer rest on?",
    "3_documents": "Which document made it say this?",
    "4_translation": "Which word of the source does each target word come from?",
    "5_faithfulness": "Is the method right? (comprehensiveness and sufficiency of three methods)",
}


def run(code: str, python: str, models: Path) -> dict[str, Any]:
    """A user's lines in an empty folder: what they printed, or how they ended."""
    for name in MODELS:
        code = code.replace(name, str(models / name))
    with tempfile.TemporaryDirectory() as folder:
        rows = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
        (Path(folder) / "texts.jsonl").write_text(rows)
        done = subprocess.run(
            [python, "-W", "ignore", "-c", code], cwd=folder, capture_output=True, text=True,
            timeout=LIMIT, check=False,
        )  # fmt: skip
    if not done.returncode:
        return {"printed": done.stdout.strip()}
    errors = re.findall(r"^\w[\w.]*(?:Error|Exit)\b.*", done.stderr, re.MULTILINE)
    return {"error": errors[-1] if errors else done.stderr[-200:]}


def lines(tool: str, job: str) -> list[str]:
    """A user's lines that are not empty."""
    text = (HERE / tool / f"{job}.py").read_text()
    return [line for line in text.splitlines() if line.strip()]


def cell(found: dict[str, Any], tool: str, job: str) -> str:
    if not (HERE / tool / f"{job}.py").exists():
        return "–"
    failed = "error" in found[tool][job]
    return f"{len(lines(tool, job))}{' (fails)' if failed else ''}"


def page() -> str:
    """docs/peers.md: what people wrote by hand, the table, and the code of each cell."""
    found = json.loads(RESULTS.read_text())
    head = ["job", *(f"{TOOLS[tool]} {found['versions'][tool]}" for tool in TOOLS)]
    rows = [[name, *(cell(found, tool, job) for tool in TOOLS)] for job, name in JOBS.items()]
    table = [head, ["---", *["---:" for _ in TOOLS]], *rows]
    printed = "\n".join(f"| {' | '.join(row)} |" for row in table)
    parts = [(HERE / "page.md").read_text().replace("TABLE", printed).rstrip()]
    for job, name in JOBS.items():
        parts.append(f"## {name}")
        for tool in TOOLS:
            if (HERE / tool / f"{job}.py").exists():
                code = (HERE / tool / f"{job}.py").read_text()
                parts.append(f"{TOOLS[tool]}:\n\n```python\n{code}```")
    return "\n\n".join(parts) + "\n"


def measure(models: Path, pythons: dict[str, str]) -> None:
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"versions": {}}
    asked = "import importlib.metadata as m; print(m.version({!r}))"
    for tool, python in pythons.items():
        own = str(Path(python).absolute())
        version = subprocess.run(
            [own, "-c", asked.format(tool)], capture_output=True, text=True, check=True
        )
        found["versions"][tool] = version.stdout.strip()
        jobs = sorted(path.stem for path in (HERE / tool).glob("*.py"))
        found[tool] = {}
        for job in jobs:
            found[tool][job] = run((HERE / tool / f"{job}.py").read_text(), own, models)
            print(tool, job, found[tool][job].get("error", "ran"))
    RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    first, *rest = sys.argv[1:]
    if first == "page":
        PAGE.write_text(page())
        return
    measure(Path(first).absolute(), dict(argument.split("=", 1) for argument in rest))


if __name__ == "__main__":
    main()
