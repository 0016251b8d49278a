"""Real graphs with types from the directories they are unpacked to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

Graph = dict[Any, dict[str, Any]]


def rows_of(arrays: dict[str, Any], name: str, num_nodes: int) -> Any:
    """Dense rows of a type, whose wide ones are in CSR; None where it has none."""
    if f"x_{name}" in arrays:
        return arrays[f"x_{name}"]
    if f"x_{name}_indptr" not in arrays:
        return None
    indptr, columns = arrays[f"x_{name}_indptr"], arrays[f"x_{name}_indices"]
    rows = np.zeros((num_nodes, int(columns.max()) + 1), np.float32)
    rows[np.repeat(np.arange(num_nodes), np.diff(indptr)), columns] = arrays.get(f"x_{name}_data", 1)
    return rows


def read_types(directory: Path) -> Graph:
    """Return the graph with a reverse of every type of edges; splits belong to the type with labels."""
    arrays = {path.stem: np.load(path) for path in directory.glob("*.npy")}
    meta = json.loads((directory / "meta.json").read_text(encoding="utf-8"))
    counts = meta.get("num_nodes") or {kind: meta[f"num_{kind}s"] for kind in ("user", "artist", "tag")}
    graph: Graph = {}
    for node_type, count in counts.items():
        graph[node_type] = {"num_nodes": count}
        rows = rows_of(arrays, node_type, count)
        if rows is not None:
            graph[node_type]["x"] = rows
        if f"y_{node_type}" in arrays:
            graph[node_type]["y"] = arrays[f"y_{node_type}"]
            ids = {k.replace("_idx", ""): v for k, v in arrays.items() if "_idx" in k}
            graph[node_type]["splits"] = ids
    for key, edges in arrays.items():
        if key.startswith("edges_"):
            relation = key.removeprefix("edges_")
            source, word, target = relation.split("__")
            graph[source, word, target] = {"edge_index": edges}
            if f"weight_{relation}" in arrays:
                graph[source, word, target]["weight"] = arrays[f"weight_{relation}"]
            graph[target, f"rev_{word}", source] = {"edge_index": edges[::-1]}
    return graph
