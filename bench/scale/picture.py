"""The picture of a run: megabytes and milliseconds of a batch, by epoch, of each memory, beside the floor and rivals.

python bench/scale/picture.py FIGURES.json [PICTURE.svg]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
import report
from report import results  # noqa: F401 - where machine() is

COLUMNS = ["epoch", "system", "MB a batch", "ms a batch"]


def table(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a row for each epoch of each system and memory, and of the loader's floors.

    The stages of an epoch are added up: its first batch is one. A policy that was counted has its floor, its reads in no time that it
    takes to decide.
    """
    stages: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for line in lines:
        if "epoch" in line:
            stages.setdefault((line["system"], line["memory"], line["epoch"]), []).append(line)
    rows = []
    for (system, memory, epoch), parts in stages.items():
        batches, last = max(part["batches"] for part in parts), parts[-1]
        floor = [last["floor_bytes"], last["floor_seconds"]]
        taken = [sum(part.get(key, 0) for part in parts) for key in ("read_bytes", "write_bytes", "seconds")]
        moved = [taken[0] + taken[1], taken[2]] if "seconds" in last else floor
        found = [(system, moved), ("floor", floor)] if system == "freshgo" else [(system, moved)]
        for name, (n_bytes, seconds) in found:
            figures = [n_bytes / 1e6 / batches, 1e3 * seconds / batches]
            rows.append([str(epoch), f"{name}, {memory}", *(round(figure, 2) for figure in figures)])
    return {"columns": COLUMNS, "rows": rows}


def draw(figures: dict[str, Any], path: Path) -> None:
    title, by = figures["shape"], {"table": "batches", "x": "epoch", "by": ["system"]}
    panels = [{"title": f"{title}: {name}", "y": [name], "log": name.startswith("ms"), **by} for name in COLUMNS[2:]]
    report.draw({"batches": table(figures["lines"])}, panels, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", type=Path)
    parser.add_argument("picture", type=Path, nargs="?", help="else beside the figures")
    args = parser.parse_args()
    figures = json.loads(args.figures.read_text())
    print(report.markdown(table(figures["lines"])))
    draw(figures, args.picture or args.figures.with_suffix(".svg"))


if __name__ == "__main__":
    main()
