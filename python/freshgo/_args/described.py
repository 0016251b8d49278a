"""Text about a store, from what the native library says of it. This module needs neither torch nor NumPy."""

from __future__ import annotations

import math
import re
from typing import Any

from freshgo._args.aggregates import Aggregate
from freshgo._args.size import format_size
from freshgo._args.versions import StoreVersion


def describe(info: dict[str, Any]) -> str:
    """Return what a store holds, in a few lines."""
    lines = [
        f"{info['path']}",
        f"  uuid     {info['uuid']}",
        f"  version  {StoreVersion.of(info['history'])[-1]}",
        f"  nodes    {info['num_nodes']:,}",
        f"  edges    {info['num_edges']:,}",
    ]
    if any(nodes["order"] is not None for nodes in info["node_types"] or [info]):
        lines.append("  order    rows of node tensors are stored in the order of their use")
    if not info["node_types"]:
        lines += _tensors("node", info["tensors"]) + _tensors("edge", info["edge_tensors"])
        return "\n".join(lines + _by_target(info) + _splits(info) + _attached(info))
    lines += _attached(info)
    for nodes in info["node_types"]:
        lines.append(f"  nodes of type {nodes['name']!r}: {nodes['num_nodes']:,}")
        lines += ["  " + line for line in _tensors("node", nodes["tensors"]) + _splits(nodes)]
    for edges in info["edge_types"]:
        lines.append(f"  edges of type {(edges['source'], edges['relation'], edges['target'])}: {edges['num_edges']:,}")
        lines += ["  " + line for line in _tensors("edge", edges["tensors"]) + _by_target(edges)]
    return "\n".join(lines)


def summarise(info: dict[str, Any]) -> str:
    """Return what a store holds, in a line."""
    return f"{info['num_nodes']:,} nodes, {info['num_edges']:,} edges, {format_size(info['n_bytes'])}"


def _tensors(level: str, tensors: list[dict[str, Any]]) -> list[str]:
    lines = []
    for tensor in tensors:
        size = format_size(math.prod(tensor["shape"]) * _item_size(tensor["dtype"]))
        stored = "" if tensor["error"] is None else f", stored as {tensor['stored']}"
        lines.append(f"  {level:8} {tensor['name']}: {tensor['dtype']} {tensor['shape']}, {size}{stored}")
        aggregate = Aggregate.of(tensor["name"], tensor.get("aggregate"))
        if aggregate is not None:
            lines.append(f"           {aggregate}")
    return lines


def _item_size(dtype: str) -> int:
    """Return the bytes of a number: of ``"bfloat16"`` 2, of ``"bool"`` 1."""
    bits = re.search(r"\d+", dtype)
    return int(bits[0]) // 8 if bits else 1


def _by_target(edges: dict[str, Any]) -> list[str]:
    if edges["unnumbered"]:
        return ["  e_id     none: converted with edge_ids=False"]
    return [f"  weights  {edges['weights_of']} by target, with sums"] if edges["weights_of"] else []


def _splits(nodes: dict[str, Any]) -> list[str]:
    return [f"  split    {name}: {count:,} nodes" for name, count in nodes["splits"].items()]


def _attached(info: dict[str, Any]) -> list[str]:
    """Name splits of links, and tensors of the graph as a whole."""
    names = [array["name"].split("/") for array in info["attachments"]]
    links = dict.fromkeys(name[1] for name in names if name[0] == "links")
    whole = ["/".join(name[1:]) for name in names if name[0] == "attributes" and len(name) > 1]
    return [f"  links    {name}" for name in links] + ([f"  graph    {', '.join(whole)}"] if whole else [])
