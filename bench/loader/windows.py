"""What layer-wise inference would move if it went through targets by windows: a count, against reading once and writing
once.

    python bench/loader/windows.py DIR [--nodes 400000] [--graphs DATA] [--share 0.1] [--width 128]

`freshgo.infer` has some columns of all rows in memory. The other way is to have all columns of a window of targets in
the order of the rows on disk, and of the sources that most windows need. Rows of other sources come in packs that are
written while rows are made and read once (packs), or row by row where the disk has them (rows), or with the other rows
of their page (pages). Of windows of 1 to 8 % of the nodes the best is shown. The graph is that of `infer.py`, in the
order that it was made in, shuffled, and relaid out; and those in DATA, directories with an `edge_index.npy`.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from infer import generated

import freshgo

PAGE = 4096
WINDOWS = (0.01, 0.02, 0.04, 0.06, 0.08)


def edges(store: freshgo.Store) -> tuple[np.ndarray, np.ndarray]:
    """The places on disk of the rows of sources and targets."""
    path, order = Path(store.path), store._contents.info["order"]
    place = np.arange(store.num_nodes)
    if order is not None:
        place[np.fromfile(path / order["file"], np.uint32, store.num_nodes)] = np.arange(store.num_nodes)
    of = {array["name"]: array for array in store._contents.info["topology"]}
    ptr = np.fromfile(path / of["indptr"]["file"], of["indptr"]["dtype"], store.num_nodes + 1).astype(np.int64)
    sources = np.fromfile(path / of["indices"]["file"], of["indices"]["dtype"], store.num_edges)
    return place[sources], place[np.repeat(np.arange(store.num_nodes), np.diff(ptr))]


def counted(store: freshgo.Store, share: float, width: int) -> str:
    nodes, (sources, targets) = store.num_nodes, edges(store)
    row, found = 4 * width, []
    for part in WINDOWS:
        size = max(1, int(part * nodes))
        windows = -(-nodes // size)
        outside = sources // size != targets // size
        pairs = np.unique(sources[outside] * windows + targets[outside] // size)
        asked = np.bincount(pairs // windows, minlength=nodes)
        hot = np.argsort(-asked, kind="stable")[: int((share - part) * nodes)]
        asked[hot] = 0
        cold = pairs[asked[pairs // windows] > 0]
        pages = np.unique(cold // windows // max(1, PAGE // row) * windows + cold % windows)
        rest = 2 + 4 * len(sources) / nodes / row
        ways = (
            rest + 2 * len(cold) / nodes,
            rest + len(cold) / nodes,
            rest + len(pages) * max(PAGE, row) / row / nodes,
        )
        found.append([way / 2 for way in ways] + [outside.mean()])
    packs, rows, pages, _ = (min(column) for column in zip(*found, strict=True))
    outside = min(found)[-1]
    return f"packs {packs:.2f} x, rows {rows:.2f} x, pages {pages:.2f} x; {outside:.0%} of the edges from other windows"


def graphs(args: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    made = generated(args.nodes, 6 * args.nodes, 1)
    yield "generated", made
    for path in sorted(args.graphs.glob("*/edge_index.npy")) if args.graphs else []:
        index = np.load(path)
        nodes = int(index.max()) + 1
        yield path.parent.name, {"edge_index": index, "x": torch.zeros(nodes, 1), "num_nodes": nodes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--nodes", type=int, default=400_000)
    parser.add_argument("--graphs", type=Path)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--width", type=int, default=128)
    args = parser.parse_args()
    path = args.dir / "windows"
    args.dir.mkdir(parents=True, exist_ok=True)
    try:
        planted = generated(args.nodes, 6 * args.nodes, 1, shuffled=False)
        for name, graph in [("as it was made", planted), *graphs(args)]:
            for how in ({}, {"relayout": "community"}) if graph is not planted else ({},):
                with freshgo.convert(graph, path, progress=False, overwrite=True, **how) as store:
                    print(
                        f"{name}{', relaid out' if how else ''}: {counted(store, args.share, args.width)}", flush=True
                    )
    finally:
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
