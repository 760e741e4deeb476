"""What a first install weighs: python benchmarks/install.py [PACKAGE …]

Installs the dependencies of pyproject.toml in an empty environment, then each of the named extras
on top of the first, and prints megabytes, packages and seconds; then the sizes of the packages.
"""

import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
SIZES = """
import importlib.metadata, os
for one in importlib.metadata.distributions():
    files = [one.locate_file(file) for file in one.files or []]
    print(one.name, sum(os.path.getsize(file) for file in files if os.path.exists(file)) / 1e6)
"""


def install(folder: Path, packages: list[str]) -> float:
    """Seconds that pip takes."""
    pip = [folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
    start = time.perf_counter()
    subprocess.run([*pip, "--constraint", ROOT / "constraints.txt", *packages], check=True)
    return time.perf_counter() - start


def sizes(folder: Path) -> dict[str, float]:
    """Megabytes of each package."""
    asked = [folder / "bin" / "python", "-c", SIZES]
    lines = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines}


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        venv.create(folder, with_pip=True)
        for name in ("", *sys.argv[1:]):
            own = project["optional-dependencies"][name] if name else project["dependencies"]
            seconds = install(folder, own)
            found = sizes(folder)
            total = sum(found.values())
            print(
                f"{name or 'first install'}: {total:.0f} MB, {len(found)} packages, {seconds:.0f} s"
            )
        for name, size in sorted(found.items(), key=lambda item: -item[1]):
            print(f"  {size:8.1f}  {name}")


if __name__ == "__main__":
    main()
