"""What the benchmarks of the papers share: their graphs, their options, and what they leave.

Each leaves bench/papers/NAME.json with its tables, the command, the seed and the machine, and the chart
docs/papers-NAME.svg. `python bench/papers/report.py NAME` prints the tables of a paper as Markdown for docs/papers.md, and
draws its chart anew.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import results

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SEED = 1
"""Of every draw that is not named by another."""


def options(description: str | None, parts: list[str]) -> argparse.ArgumentParser:
    """Return a parser of the options that all papers have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=ROOT.parent / "shared" / "data", help="a folder of unpacked graphs"
    )
    parser.add_argument("--parts", default=",".join(parts), help=f"of {', '.join(parts)}; others keep their figures")
    parser.add_argument("--out", type=Path, default=HERE, help="the folder of the JSON")
    return parser


def edges_of(root: Path) -> tuple[Tensor, Tensor | None]:
    """Return all edges of a graph, int64 [2, edges] over one range of ids, and their weights if it has any.

    A graph of several node types has all its relations both ways.
    """
    if (root / "edge_index.npy").exists():
        return torch.from_numpy(np.load(root / "edge_index.npy")), None
    if (root / "train_edges.npy").exists():
        relations, weights = {("user", "item"): np.load(root / "train_edges.npy")}, {}
    else:
        relations, weights = {}, {}
        for path in sorted(root.glob("edges_*.npy")):
            source, name, target = path.stem.removeprefix("edges_").split("__")
            relations[source, target, name] = np.load(path)
            if (of := root / f"weight_{source}__{name}__{target}.npy").exists():
                weights[source, target, name] = np.load(of)
    pairs = {ends: edges if edges.shape[0] == 2 else edges.T for ends, edges in relations.items()}
    sizes: dict[str, int] = {}
    for ends, pair in pairs.items():
        for node, ids in zip(ends[:2], pair, strict=True):
            sizes[node] = max(sizes.get(node, 0), int(ids.max()) + 1)
    first = dict(zip(sizes, np.cumsum([0, *sizes.values()]), strict=False))
    both, weight = [], []
    for ends, pair in pairs.items():
        moved = np.stack([ids + first[node] for node, ids in zip(ends[:2], pair, strict=True)])
        both += [moved, moved[::-1]]
        weight += 2 * [weights.get(ends, np.ones(moved.shape[1]))]
    stated = torch.from_numpy(np.concatenate(weight).astype(np.float32)) if weights else None
    return torch.from_numpy(np.concatenate(both, axis=1).astype(np.int64)), stated


def rmat(scale: int, num_edges: int) -> Tensor:
    """Return the edges of an R-MAT graph of 2^scale nodes with the parameters of Graph500, its nodes renamed at random."""
    rng = np.random.default_rng(SEED)
    source, target = np.zeros((2, num_edges), np.int64)
    for _ in range(scale):
        drawn = rng.random(num_edges)
        source = 2 * source + ((drawn >= 0.57) & (drawn < 0.76) | (drawn >= 0.95))
        target = 2 * target + (drawn >= 0.76)
    names = rng.permutation(1 << scale)
    return torch.from_numpy(np.stack([names[source], names[target]]))


def graph(name: str, data: Path) -> Tensor:
    """Return the edges of a graph of ``data``, as NAME or renamed at random as NAME:shuffled, or of rmat:SCALE:EDGES."""
    first, _, more = name.partition(":")
    if first == "rmat":
        scale, count = map(int, more.split(":"))
        return rmat(scale, count)
    edges, _ = edges_of(data / first)
    if more == "shuffled":
        edges = torch.randperm(int(edges.max()) + 1, generator=torch.Generator().manual_seed(SEED + 1))[edges]
    return edges


class Report:
    """The tables of a paper, and where they came from."""

    def __init__(self, paper: str, out: Path) -> None:
        self.path = out / f"{paper}.json"
        self.paper = paper

    def add(self, name: str, columns: list[str], rows: list[list[Any]], part: str = "") -> None:
        """Keep a table with its command and machine, print it, and write all that there is."""
        about = {**results.machine(), "load": f"{os.getloadavg()[0]:.1f}", "seed": SEED}
        table = {
            "command": f"python bench/papers/{self.paper}.py --parts {part or name}",
            **about,
            "columns": columns,
            "rows": rows,
        }
        # Other parts may run beside this one.
        tables: dict[str, Any] = json.loads(self.path.read_text())["tables"] if self.path.exists() else {}
        tables[name] = table
        self.path.write_text(dumped({"paper": self.paper, "tables": tables}), encoding="utf-8")
        print(f"\n## {name}\n\n{markdown(table)}", flush=True)


def dumped(report: dict[str, Any]) -> str:
    """JSON with a line for each row."""
    return re.sub(
        r"\[\n\s+([^\[\]{}]*?)\n\s+\]",
        lambda row: "[" + re.sub(r",\n\s+", ", ", row[1]) + "]",
        json.dumps(report, indent=1) + "\n",
    )


def markdown(table: dict[str, Any]) -> str:
    """A table in Markdown."""
    lines = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
    return "\n".join("| " + " | ".join(map(shown, line)) + " |" for line in lines)


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def draw(tables: dict[str, Any], panels: list[dict[str, Any]], path: Path) -> None:
    """Draw lines: a panel names its table, the columns of its x and y, and the column or columns whose values name a line."""
    import matplotlib

    matplotlib.rcParams |= {"svg.hashsalt": "freshgo", "svg.fonttype": "none", "font.size": 9}
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(panels), 3.4), layout="constrained")
    for axes, panel in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels, strict=True):
        table = tables[panel["table"]]
        column = {name: number for number, name in enumerate(table["columns"])}
        lines: dict[str, list[tuple[Any, float]]] = {}
        for row in table["rows"]:
            if all(row[column[name]] == value for name, value in panel.get("where", {}).items()):
                for y in panel["y"]:
                    label = " ".join(
                        [*(str(row[column[name]]) for name in panel.get("by", [])), *([y] * (len(panel["y"]) > 1))]
                    )
                    lines.setdefault(label, []).append((str(row[column[panel["x"]]]), row[column[y]]))
        for label, points in lines.items():
            axes.plot(*zip(*points, strict=True), ".-", label=label)
        axes.set(title=panel["title"], xlabel=panel["x"], ylabel=panel.get("unit", panel["y"][0]))
        if panel.get("log"):
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=panel.get("bottom", 0))
        axes.legend(frameon=False, fontsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper", choices=["ginex", "fgnn", "fastgl", "freshgnn"])
    parser.add_argument("--folder", type=Path, default=ROOT / "docs", help="where the chart goes")
    args = parser.parse_args()
    tables = json.loads((HERE / f"{args.paper}.json").read_text())["tables"]
    for name, table in tables.items():
        print(f"## {name}: {table['command']}\n\n{markdown(table)}\n")
    panels = __import__(args.paper).PANELS
    draw(tables, panels, args.folder / f"papers-{args.paper}.svg")


if __name__ == "__main__":
    main()
