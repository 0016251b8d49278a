"""Random changes of stores, and what the graphs in them are then."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
from graphs import NOT_TENSORS, UNNAMED, Graph, num_nodes


def rows_of(graph: Graph, key: Any) -> int:
    return int(graph[key]["edge_index"].shape[1]) if isinstance(key, tuple) else num_nodes(graph)[key]


def updated(graph: Graph, draw: random.Random) -> tuple[dict[str, Any], Graph]:
    """Arguments of update, and the graph as it is then."""
    after = copy.copy(graph)
    tensors: dict[Any, dict[str, Any]] = {}
    splits: dict[Any, dict[str, Any]] = {}
    drop: dict[Any, list[str]] = {}
    rng = np.random.default_rng(draw.getrandbits(32))
    for key in graph:
        part = dict(after[key])
        part.setdefault("num_nodes", rows_of(graph, key)) if isinstance(key, str) else None
        names = [name for name in part if name not in ("edge_index", "num_nodes", "splits") and "mask" not in name]
        for name in names:
            chance = draw.random()
            if chance < 0.2:
                drop.setdefault(key, []).append(name)
                del part[name]
            elif chance < 0.4:
                part[name] = rng.standard_normal((rows_of(graph, key), draw.randrange(1, 9))).astype(np.float32)
                tensors.setdefault(key, {})[name] = part[name]
        if draw.random() < 0.4:
            name = f"{'edge' if isinstance(key, tuple) else 'node'}{draw.randrange(9)}"
            if name not in drop.get(key, []):
                part[name] = rng.integers(0, 99, rows_of(graph, key))
                tensors.setdefault(key, {})[name] = part[name]
        if isinstance(key, str) and rows_of(graph, key) and draw.random() < 0.5:
            ids = rng.integers(0, rows_of(graph, key), 7)
            part["splits"] = {**part.get("splits", {}), "new": ids}
            splits.setdefault(key, {})["new"] = ids
        after[key] = part
    if "" in graph:
        flat = {**tensors.get("", {}), **tensors.get(UNNAMED, {})}
        dropped = [*drop.get("", []), *drop.get(UNNAMED, [])]
        return {"tensors": flat, "splits": splits.get("", {}), "drop": dropped}, after
    return {"tensors": tensors, "splits": splits, "drop": drop}, after


def grown(graph: Graph, draw: random.Random, most: int) -> tuple[dict[str, Any], Graph]:
    """Arguments of append, at most so many nodes of each type among them, and the graph as it is then."""
    rng = np.random.default_rng(draw.getrandbits(32))
    after: Graph = {}
    nodes: dict[Any, Any] = {}
    edges: dict[Any, Any] = {}
    for key, part in graph.items():
        if isinstance(key, tuple):
            continue
        before, new = rows_of(graph, key), rng.integers(0, most) if draw.random() < 0.7 else 0
        given: dict[str, Any] = {"num_nodes": int(new)} if draw.random() < 0.5 else {}
        whole = {**part, "num_nodes": before + int(new)}
        for name, rows in part.items():
            if name not in NOT_TENSORS:
                given[name] = like(rows, new, rng)
                whole[name] = np.concatenate([rows, given[name]])
        splits = {**part.get("splits", {})}
        for name in {**splits, "more": None}:
            if draw.random() < 0.4 and before + new:
                ids = rng.integers(0, before + new, 5)
                given.setdefault("splits", {})[name] = ids
                splits[name] = np.concatenate([splits[name], ids]) if name in splits else ids
        if splits:
            whole["splits"] = splits
        after[key] = whole
        if new or given.get("splits"):
            nodes[key] = given if len(given) > 0 and (given.keys() - {"splits"}) else {**given, "num_nodes": int(new)}
    counts = num_nodes(after)
    for key, part in graph.items():
        if not isinstance(key, tuple):
            continue
        ends = [counts[end] for end in (key[0], key[2])]
        new = rng.integers(0, 5 * most) if draw.random() < 0.7 and all(ends) else 0
        given = {"edge_index": np.stack([(n * rng.random(new) ** 2).astype(np.int64) for n in ends])}
        for name, rows in part.items():
            if name not in NOT_TENSORS:
                given[name] = like(rows, new, rng)
        joined = {
            name: np.concatenate([part[name], rows], axis=int(name == "edge_index")) for name, rows in given.items()
        }
        after[key] = {**part, **joined}
        if new:
            edges[key] = given
    after = {key: after[key] for key in graph}
    if "" in graph:
        return {"nodes": nodes.get(""), "edges": edges.get(UNNAMED)}, after
    return {"nodes": nodes, "edges": edges}, after


def like(rows: np.ndarray[Any, Any], count: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Further rows of a tensor: of its dtype, and not negative where its are not, as weights are."""
    shape = (count, *rows.shape[1:])
    if rows.dtype.kind == "f":
        drawn = rng.standard_normal(shape)
        return (drawn if (rows < 0).any() else np.abs(drawn)).astype(rows.dtype)
    return rng.integers(0, 2 if rows.dtype == bool else 7, shape).astype(rows.dtype)
