"""What benchmarks measured, kept, drawn and compared.

    python bench/results.py gather LINES OUT      OUT/results.json and a chart for each contest, OUT/NAME.svg
    python bench/results.py compare BASE NEW      what got slower from one results.json to another

The benchmarks call :func:`record` (in Go: bench/record), which appends a line of JSON to the file that
$FRESHGO_BENCH_RESULTS names; without it nothing is written. `make bench` and `make bench-compare BASE=` call this.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LINES = "FRESHGO_BENCH_RESULTS"
OURS = "freshgo"


def record(bench: str, case: str, name: str, values: Iterable[float], unit: str = "s", *, more: bool = False) -> None:
    """Keep what a candidate measured in a contest, a value for each round. ``more``: more is better, as of rates."""
    path = os.environ.get(LINES)
    if path:
        line = {"bench": bench, "case": case, "name": name, "values": list(values), "unit": unit, "more": more}
        with Path(path).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")


def pyg() -> str | None:
    """PyG by what it samples with: its own sampler is the strongest where it is installed. None where it has neither,
    which its loaders say only when they sample."""
    from torch_geometric import typing

    if typing.WITH_PYG_LIB:
        return "PyG with pyg-lib"
    if typing.WITH_TORCH_SPARSE:
        return "PyG with torch-sparse"
    print("PyG takes no part: it has no sampler here, bench/README.md says how to install one")
    return None


def contests(measured: list[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The candidates of each contest, as they were first measured."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in measured:
        found.setdefault((one["bench"], one["case"]), []).append(one)
    return found


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    cpu = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit.strip(),
        "machine": f"{os.cpu_count()} cores, {cpu[0] if cpu else platform.machine()}, Linux {platform.release()}",
    }


def gather(lines: Path, out: Path) -> None:
    """Write results.json and the charts."""
    sys.path.insert(0, str(ROOT / "bench" / "readme"))
    import draw

    measured = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    about = machine()
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps({**about, "measured": measured}, indent=1) + "\n", encoding="utf-8")
    for (bench, case), candidates in contests(measured).items():
        better = "more is better" if candidates[0]["more"] else "less is better"
        rounds = max(len(one["values"]) for one in candidates)
        panel = {
            "title": case,
            "unit": f"{candidates[0]['unit']}, median of {rounds}, {better}; {about['machine']}",
            "bars": [
                {"name": one["name"], "value": float(f"{statistics.median(one['values']):.3g}"), "unit": one["unit"]}
                for one in candidates
            ],
        }
        name = re.sub(r"[^a-z0-9]+", "-", f"{bench} {case}".lower()).strip("-")
        (out / f"{name}.svg").write_text(draw.draw({"title": f"{bench}: {case}", "panels": [panel]}), encoding="utf-8")
    print(f"{out / 'results.json'}: {len(measured)} figures of {len(contests(measured))} contests")


def compare(base: dict[str, Any], new: dict[str, Any], tolerance: float) -> list[str]:
    """What got slower by more than the tolerance, and by more than the rounds of either run differ.

    Where a contest has the same rivals in both runs, ours is measured by the median of theirs: a machine that is slower
    today is slower for all.
    """
    slower = []
    before = contests(base["measured"])
    for key, candidates in contests(new["measured"]).items():
        earlier = {one["name"]: one for one in before.get(key, ())}
        rivals = [
            _factor(earlier[one["name"]], one)
            for one in candidates
            if one["name"] in earlier and not one["name"].startswith(OURS)
        ]
        drift = statistics.median(rivals) if rivals else 1.0
        for one in candidates:
            if one["name"].startswith(OURS) and one["name"] in earlier:
                factor = _factor(earlier[one["name"]], one) / drift
                line = f"{factor:6.2f}  {key[0]}: {key[1]}, {one['name']}"
                line += f" (the rivals {drift:.2f})" if rivals else ""
                worse = factor > 1 + tolerance and _apart(earlier[one["name"]], one, drift)
                print(line + ("  SLOWER" if worse else ""))
                slower += [line] if worse else []
    return slower


def _factor(before: dict[str, Any], after: dict[str, Any]) -> float:
    """How many times worse the median became."""
    factor = statistics.median(after["values"]) / statistics.median(before["values"])
    return 1 / factor if after["more"] else factor


def _apart(before: dict[str, Any], after: dict[str, Any], drift: float) -> bool:
    """Whether even the best round of one run is worse than the worst of the other."""
    if after["more"]:
        return max(after["values"]) * drift < min(before["values"])
    return min(after["values"]) / drift > max(before["values"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    gathering = commands.add_parser("gather")
    gathering.add_argument("lines", type=Path)
    gathering.add_argument("out", type=Path)
    comparing = commands.add_parser("compare")
    comparing.add_argument("base", type=Path)
    comparing.add_argument("new", type=Path)
    comparing.add_argument("--tolerance", type=float, default=0.05)
    args = parser.parse_args()
    if args.command == "gather":
        gather(args.lines, args.out)
        return
    base, new = (json.loads(path.read_text(encoding="utf-8")) for path in (args.base, args.new))
    if base["machine"] != new["machine"]:
        print(f"two machines: {base['machine']} and {new['machine']}; only what is measured by rivals can be compared")
    print(f"times as slow as at {base['commit']} ({base['date']}):")
    slower = compare(base, new, args.tolerance)
    if slower:
        sys.exit(f"{len(slower)} got slower")


if __name__ == "__main__":
    main()
