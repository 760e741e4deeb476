"""Paired differences between a method and the per-text values of others.

python benchmarks/rivals.py ROWS.jsonl RIVALS.json [METHOD]

ROWS: what `alti bench` wrote. RIVALS: {"name": {"row number": [comprehensiveness, sufficiency]}}.
An interval that holds 0 is called level.
"""

import json
import sys
from pathlib import Path

from alti.experiments.bench import load_rows
from alti.views.tables import Cell, Table, paired


def main(rows_file: str, rivals_file: str, method: str = "absence") -> None:
    _, rows = load_rows(Path(rows_file))
    names = ("comprehensiveness", "sufficiency")
    own = {
        r["text"]: [r["values"][name] for name in names] for r in rows if r.get("method") == method
    }
    lines = []
    for rival, values in json.loads(Path(rivals_file).read_text()).items():
        both = [i for i in own if str(i) in values]
        cells: list[Cell | str] = []
        for k, better in enumerate((1, -1)):
            found = Cell(*paired([own[i][k] for i in both], [values[str(i)][k] for i in both]))
            low, high = found.interval or (0.0, 0.0)
            verdict = (
                "level" if low <= 0 <= high else "ahead" if found.value * better > 0 else "behind"
            )
            cells += [found, verdict]
        lines.append((rival, tuple(cells)))
    columns = ("rival", "comprehensiveness ↑", "", "sufficiency ↓", "")
    print(
        Table(
            f"{method} minus each rival", columns, tuple(lines), f"{len(own)} texts, in pairs."
        ).markdown(),
        end="",
    )


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
