"""The graphs of the history benchmarks, real ones from a folder of packs or unpacked, and a generated one with communities."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

REAL = {  # in the order of the packs' names
    "amazon-computers": "x",
    "coauthor-physics": "x",
    "ogbn-arxiv-nofeat": "x_struct",
    "tolokers": "x",
}


def load(name: str, folder: Path, work: Path, columns: int = 0) -> dict[str, Any]:
    """Return ``edge_index``, ``x``, ``y`` and ``splits`` of a graph; 'community:NODES[:COLUMNS]' generates one."""
    if name.startswith("community"):
        nodes, width = [*name.split(":")[1:], "", ""][:2]
        return community(int(float(nodes or 1e6)), width=int(width or 128))
    where = folder / name
    if not where.is_dir():
        where = work / name
        if not where.is_dir():
            with tarfile.open(folder / f"{name}.tar.xz") as tar:
                tar.extractall(work, filter="data")
    if REAL.get(name) == "x_struct" and not (where / "x_struct.npy").exists():
        subprocess.run([sys.executable, folder / "struct_feats.py", where], check=True)

    def read(part: str) -> Tensor:
        return torch.from_numpy(np.load(where / f"{part}.npy"))

    edge_index = read("edge_index")
    if json.loads((where / "meta.json").read_text())["direction"].startswith("directed"):
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    y = read("y").flatten()
    x = sparse_rows(where, y.numel()) if (where / "x_indptr.npy").exists() else read(REAL.get(name, "x")).float()
    if 0 < columns < x.size(1):
        x = project(x, columns)
    splits = {split: read(f"{split}_idx") for split in ("train", "val", "test")}
    return {"edge_index": edge_index, "x": x, "y": y, "splits": splits}


def sparse_rows(where: Path, rows: int) -> Tensor:
    indptr, indices = np.load(where / "x_indptr.npy"), np.load(where / "x_indices.npy")
    values = np.load(where / "x_data.npy") if (where / "x_data.npy").exists() else np.ones(len(indices), np.float32)
    x = torch.zeros(rows, int(indices.max()) + 1)
    x[torch.from_numpy(np.repeat(np.arange(rows), np.diff(indptr))), torch.from_numpy(indices.astype(np.int64))] = (
        torch.from_numpy(values.astype(np.float32))
    )
    return x


def project(x: Tensor, columns: int) -> Tensor:
    """Fewer columns by a random projection, which keeps what is near near."""
    matrix = torch.randn(x.size(1), columns, generator=torch.Generator().manual_seed(0))
    return x @ (matrix / columns**0.5)


def community(nodes: int, degree: int = 15, classes: int = 32, width: int = 128) -> dict[str, Any]:
    """A graph whose labels are learned from neighbours: communities of Zipf's sizes, one class for each.

    Three in four edges stay in the community; who is cited within it has a long tail. A node's features are its class's
    centre under noise of 2.5 times its length per column: a node alone says little, its neighbourhood much.
    """
    rng = np.random.default_rng(0)
    weight = (np.arange(classes) + 3.0) ** -0.7
    y = np.sort(rng.choice(classes, nodes, p=weight / weight.sum()))
    first, last = np.searchsorted(y, np.arange(classes)), np.searchsorted(y, np.arange(classes), side="right")
    target = np.repeat(np.arange(nodes), np.minimum(rng.geometric(1 / degree, nodes), 20 * degree))
    skewed = rng.random(len(target)) ** 2.5
    inside = rng.random(len(target)) < 0.75
    low, high = np.where(inside, first[y[target]], 0), np.where(inside, last[y[target]], nodes)
    source = (low + skewed * (high - low)).astype(np.int64)
    names = rng.permutation(nodes)  # communities are not neighbours on disk
    labels = np.empty(nodes, np.int64)
    labels[names] = y
    gen = torch.Generator().manual_seed(1)
    centres = torch.randn(classes, width, generator=gen)
    x = torch.randn(nodes, width, generator=gen).mul_(2.5).add_(centres[torch.from_numpy(labels)])
    order = torch.from_numpy(rng.permutation(nodes))
    cut = [nodes // 10, nodes // 10 + min(nodes // 20, 5000), nodes // 10 + min(nodes // 10, 10_000)]
    splits = {"train": order[: cut[0]], "val": order[cut[0] : cut[1]], "test": order[cut[1] : cut[2]]}
    edge_index = torch.from_numpy(np.stack([names[source], names[target]]))
    return {"edge_index": edge_index, "x": x, "y": torch.from_numpy(labels), "splits": splits}


def machine() -> str:
    """One line that says where figures come from."""
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    name = model.partition(":")[2].strip() or platform.processor() or platform.machine()
    return f"{os.cpu_count()} cores ({name}), torch {torch.__version__} with {torch.get_num_threads()} threads, load {load}"


def table(rows: list[list[str]]) -> str:
    """A table in Markdown; the first row is its head."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])
