"""Writes graphs as other programs keep them: OGB's, IGB's and GraphBolt's directories."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

Graph = dict[Any, dict[str, Any]]


def write_csv(path: Path, rows: Any, header: Iterable[str] = ()) -> None:
    """Write rows of numbers or words as pandas writes them for OGB: compressed, without an index."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        if header:
            file.write(",".join(header) + "\n")
        for row in rows:
            file.write(",".join(str(value) for value in np.atleast_1d(row).tolist()) + "\n")


def ogb_graph(seed: int = 0, nodes: int = 300, edges: int = 900, integers: bool = False) -> Graph:
    """A homogeneous graph with what OGB's have."""
    rng = np.random.default_rng(seed)
    x = rng.integers(9, size=(nodes, 3)) if integers else rng.standard_normal((nodes, 6)).astype(np.float32)
    return {
        "": {
            "num_nodes": nodes,
            "x": x,
            "node_year": rng.integers(1990, 2020, size=(nodes, 1)),
            "y": rng.integers(7, size=(nodes, 1)),
            "splits": dict(zip(("train", "valid", "test"), np.split(rng.permutation(nodes), [150, 200]), strict=True)),
        },
        ("", "", ""): {
            "edge_index": rng.integers(nodes, size=(2, edges)),
            "edge_attr": rng.random((edges, 2), dtype=np.float32),
        },
    }


def both_ways(graph: Graph) -> Graph:
    """The same with both directions of each edge, as OGB's ``add_inverse_edge`` numbers them."""
    edges = graph["", "", ""]
    ends = np.repeat(edges["edge_index"], 2, axis=1)
    ends[:, 1::2] = edges["edge_index"][::-1]
    return {**graph, ("", "", ""): {"edge_index": ends, "edge_attr": np.repeat(edges["edge_attr"], 2, axis=0)}}


def write_ogb_csv(root: Path, graph: Graph, split: str = "time") -> Path:
    """Write a homogeneous graph as OGB's CSV files; returns ``root``."""
    raw, nodes, edges = root / "raw", graph[""], graph["", "", ""]
    write_csv(raw / "edge.csv.gz", edges["edge_index"].T)
    write_csv(raw / "num-node-list.csv.gz", [nodes["num_nodes"]])
    write_csv(raw / "num-edge-list.csv.gz", [edges["edge_index"].shape[1]])
    files = {"x": "node-feat", "y": "node-label", "edge_attr": "edge-feat"}
    for name, rows in {**nodes, **edges}.items():
        if isinstance(rows, np.ndarray) and name != "edge_index":
            write_csv(raw / f"{files.get(name, name)}.csv.gz", rows)
    for name, ids in nodes.get("splits", {}).items():
        write_csv(root / "split" / split / f"{name}.csv.gz", ids)
    (root / "RELEASE_v1.txt").touch()
    return root


def write_ogb_npz(root: Path, graph: Graph, compressed: bool = True) -> Path:
    """Write a homogeneous graph as OGB's archives; returns ``root``."""
    raw, nodes, edges = root / "raw", graph[""], graph["", "", ""]
    raw.mkdir(parents=True)
    save = np.savez_compressed if compressed else np.savez
    ends = edges["edge_index"]
    save(
        raw / "data.npz",
        edge_index=ends,
        num_nodes_list=np.array([nodes["num_nodes"]]),
        num_edges_list=np.array([ends.shape[1]]),
        node_feat=nodes["x"],
        node_year=nodes["node_year"],
        edge_feat=edges["edge_attr"],
    )
    save(raw / "node-label.npz", node_label=nodes["y"])
    for name, ids in nodes["splits"].items():
        write_csv(root / "split" / "time" / f"{name}.csv.gz", ids)
    (root / "RELEASE_v1.txt").touch()
    return root


def typed_graph(seed: int = 0) -> Graph:
    """A heterogeneous graph such as ogbn-mag: node types without features, labels of one."""
    rng = np.random.default_rng(seed)
    count = {"author": 80, "institution": 10, "paper": 120}
    graph: Graph = {name: {"num_nodes": number} for name, number in count.items()}
    graph["paper"] |= {
        "x": rng.standard_normal((120, 4)).astype(np.float32),
        "node_year": rng.integers(2000, 2020, size=(120, 1)),
        "y": rng.integers(5, size=(120, 1)),
        "splits": dict(zip(("train", "valid", "test"), np.split(rng.permutation(120), [60, 90]), strict=True)),
    }
    for of, edges in (
        (("author", "affiliated_with", "institution"), 90),
        (("author", "writes", "paper"), 300),
        (("paper", "cites", "paper"), 400),
    ):
        ends = np.stack([rng.integers(count[of[0]], size=edges), rng.integers(count[of[2]], size=edges)])
        graph[of] = {"edge_index": ends, "edge_reltype": np.full((edges, 1), len(graph))}
    return graph


def write_ogb_types(root: Path, graph: Graph) -> Path:
    """Write a heterogeneous graph as OGB's CSV files; returns ``root``."""
    raw, split = root / "raw", root / "split" / "time"
    types = [key for key in graph if isinstance(key, str)]
    relations = [key for key in graph if isinstance(key, tuple)]
    write_csv(raw / "num-node-dict.csv.gz", [[graph[name]["num_nodes"] for name in types]], types)
    write_csv(raw / "triplet-type-list.csv.gz", relations)
    for name in types:
        for tensor, file in (("x", "node-feat"), ("node_year", "node_year")):
            if tensor in graph[name]:
                write_csv(raw / "node-feat" / name / f"{file}.csv.gz", graph[name][tensor])
    for of in relations:
        directory = raw / "relations" / "___".join(of)
        write_csv(directory / "edge.csv.gz", graph[of]["edge_index"].T)
        write_csv(directory / "num-edge-list.csv.gz", [graph[of]["edge_index"].shape[1]])
        write_csv(directory / "edge_reltype.csv.gz", graph[of]["edge_reltype"])
    write_csv(raw / "nodetype-has-label.csv.gz", [["y" in graph[name] for name in types]], types)
    write_csv(raw / "node-label" / "paper" / "node-label.csv.gz", graph["paper"]["y"])
    write_csv(split / "nodetype-has-split.csv.gz", [["splits" in graph[name] for name in types]], types)
    for name, ids in graph["paper"]["splits"].items():
        write_csv(split / "paper" / f"{name}.csv.gz", ids)
    (root / "RELEASE_v2.txt").touch()
    return root


def write_ogb_types_npz(root: Path, graph: Graph) -> Path:
    """Write a heterogeneous graph as OGB's archives; returns ``root``."""
    raw = root / "raw"
    raw.mkdir(parents=True)
    types = [key for key in graph if isinstance(key, str)]
    relations = {"___".join(key): part for key, part in graph.items() if isinstance(key, tuple)}
    np.savez_compressed(raw / "num_nodes_dict.npz", **{name: np.array([graph[name]["num_nodes"]]) for name in types})
    counts = {name: np.array([part["edge_index"].shape[1]]) for name, part in relations.items()}
    np.savez_compressed(raw / "num_edges_dict.npz", **counts)
    ends = {name: part["edge_index"] for name, part in relations.items()}
    np.savez_compressed(raw / "edge_index_dict.npz", **ends)
    kinds = {name: part["edge_reltype"] for name, part in relations.items()}
    np.savez_compressed(raw / "edge_reltype.npz", **kinds)
    np.savez_compressed(raw / "node_feat_dict.npz", paper=graph["paper"]["x"])
    np.savez_compressed(raw / "node_year.npz", paper=graph["paper"]["node_year"])
    np.savez_compressed(raw / "node-label.npz", paper=graph["paper"]["y"])
    split = root / "split" / "time"
    write_csv(split / "nodetype-has-split.csv.gz", [["splits" in graph[name] for name in types]], types)
    for name, ids in graph["paper"]["splits"].items():
        write_csv(split / "paper" / f"{name}.csv.gz", ids)
    return root


def write_npy_types(root: Path, graph: Graph, separator: str, names: dict[str, str], pairs: bool) -> Path:
    """Write ``.npy`` files of types under ``processed``, edges as ``[edges, 2]`` if ``pairs``; returns ``root``."""
    for key, part in graph.items():
        directory = root / "processed" / (key if isinstance(key, str) else separator.join(key))
        directory.mkdir(parents=True)
        for name, value in part.items():
            if isinstance(value, np.ndarray):
                turned = np.ascontiguousarray(value.T) if name == "edge_index" and pairs else value
                np.save(directory / f"{names.get(name, name)}.npy", turned)
    return root


def write_mag240m(root: Path, graph: Graph) -> Path:
    """Write a heterogeneous graph as OGB-LSC's MAG240M, with its pickles; returns ``root``."""
    write_npy_types(root, graph, "___", {"x": "node_feat", "y": "node_label"}, pairs=False)
    meta = {key: part["num_nodes"] for key, part in graph.items() if isinstance(key, str)}
    torch.save({**meta, "num_classes": 5}, root / "meta.pt")
    torch.save(graph["paper"]["splits"], root / "split_dict.pt")
    return root
