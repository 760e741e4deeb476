"""How the package is built: modules that one explanation passes through, and lengths of functions.

python benchmarks/structure.py
"""

import ast
import contextlib
import io
import statistics
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import alti

SOURCE = Path(alti.__file__).parent
TEXT = "A clever blend of fact and fiction."


def passed_through() -> set[str]:
    """The modules whose functions run for `alti explain TEXT`, other than while being imported."""
    modules: set[str] = set()
    importing = 0

    def seen(frame: FrameType, event: str, _: Any) -> None:
        nonlocal importing
        if frame.f_code.co_name == "<module>":
            importing += (event == "call") - (event == "return")
        elif event == "call" and not importing:
            name = frame.f_globals.get("__name__", "")
            modules.update({name} if name.startswith("alti") else ())

    from alti.cli import main

    sys.argv = ["alti", "explain", TEXT, "--device", "cpu"]
    sys.setprofile(seen)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main()
    sys.setprofile(None)
    return modules


def lengths() -> dict[str, int]:
    """Lines of every function's body, from the first statement behind its docstring to the last."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                own = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
                name = f"{path.relative_to(SOURCE)}:{node.name}"
                found[name] = (node.end_lineno or 0) - own[0].lineno + 1
    return found


def main() -> None:
    modules = sorted(passed_through())
    print(f"{len(modules)} modules for one `alti explain TEXT`: {', '.join(modules)}")
    found = lengths()
    ordered = sorted(found.values())
    longest = sorted(found, key=lambda name: -found[name])[:4]
    print(
        f"{len(found)} functions: median {statistics.median(ordered):g}, p90 "
        f"{ordered[int(0.9 * len(ordered))]}, max {ordered[-1]} lines; longest: "
        + ", ".join(f"{name} {found[name]}" for name in longest)
    )


if __name__ == "__main__":
    main()
