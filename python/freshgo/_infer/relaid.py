"""The in-edges of a store with an order of its own, written anew with places for nodes.

An inference goes through such a store in the order of its rows: what a layer reads and gives lies in that order, and
sources that are near lie near each other in memory. Only the result is put into the order of the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from freshgo._infer.columns import ranges
from freshgo._infer.division import offset_bytes
from freshgo._infer.files import Rows
from freshgo._infer.lists import Lists
from freshgo._infer.order import Order
from freshgo.store import Store

_TARGET = 64
"""Bytes of memory for a target of a window: its node, and where its list is and will be."""

_EDGE = 48
"""Bytes of memory for an edge that is copied."""


def arrays_by_place(store: Store, weighted: bool) -> dict[str, tuple[int, np.dtype]]:
    """The size and the dtype of each array of the lists by place."""
    nodes, edges = store.num_nodes, store.num_edges
    of = {array["name"]: array for array in store._contents.info["topology"]}
    arrays: dict[str, tuple[int, Any]] = {
        "indptr": (nodes + 1, np.uint32 if offset_bytes(edges) == 4 else np.int64),
        "indices": (edges, of["indices"]["dtype"]),
    }
    arrays |= {"weights": (edges, np.float32)} if weighted else {}
    return {name: (size, np.dtype(dtype)) for name, (size, dtype) in arrays.items()}


def write_by_place(lists: Lists, order: Order, files: dict[str, Rows], memory: int, done: int) -> Iterator[int]:
    """Write the lists to ``files`` (``indptr``, ``indices``, and ``weights`` if edges have any) from the edge ``done``
    on, and yield after each window of edges how many are written.

    Each window is one pass over the lists. The windows are as long as fits in ``memory``, of which the places and the
    new offsets take 8 bytes a node (12 from 2^32 edges on)."""
    places, ptr = order.places(), _offsets(lists, order)
    for first, end in ranges(len(ptr), lists.piece):
        files["indptr"].write(first, torch.from_numpy(ptr[first:end]))
    edge = files["indices"].dtype.itemsize + (4 if lists.weighted else 0)
    room = max(0, memory - places.nbytes - ptr.nbytes - _EDGE * lists.piece)
    targets, edges = max(1, room // 2 // _TARGET), max(1, room // 2 // edge)
    while done < lists.num_edges:
        first = int(np.searchsorted(ptr, ptr.dtype.type(done), side="right")) - 1  # the target of the next edge
        end = min(done + edges, int(ptr[min(first + targets, lists.num_nodes)]))
        last = int(np.searchsorted(ptr, ptr.dtype.type(end), side="left"))
        nodes = order.nodes(first, last)
        begins = np.clip(ptr[first : last + 1].astype(np.int64), done, end)
        cut = begins[0] - int(ptr[first])  # what an earlier window has of the first list
        by = np.argsort(nodes)
        old = lists.ptr[nodes[by]].astype(np.int64)
        old[by == 0] += cut
        sources = np.empty(end - done, files["indices"].dtype)
        weights = np.empty(end - done, np.float32)[: None if lists.weighted else 0]
        for lo, hi, taken, put in _pieces(old, np.diff(begins)[by], begins[:-1][by] - done, lists.piece):
            found, weight = lists.edges(lo, hi)
            sources[put] = places[found[taken]]
            if weight is not None:
                weights[put] = weight[taken]
        files["indices"].write(done, torch.from_numpy(sources))
        if lists.weighted:
            files["weights"].write(done, torch.from_numpy(weights))
        done = end
        yield done


def _offsets(lists: Lists, order: Order) -> np.ndarray:
    """Where the list of each place begins, and the number of edges behind."""
    ptr = np.zeros_like(lists.ptr)
    for first, end in ranges(lists.num_nodes, lists.piece):
        nodes = order.nodes(first, end)
        degrees = lists.ptr[nodes + np.int64(1)] - lists.ptr[nodes]
        np.cumsum(degrees, dtype=ptr.dtype, out=ptr[first + 1 : end + 1])
        ptr[first + 1 : end + 1] += ptr[first]
    return ptr


def _pieces(
    begins: np.ndarray, sizes: np.ndarray, at: np.ndarray, piece: int
) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """Pieces of edges that have some of the ranges ``begins``, ascending, of ``sizes``, which go to ``at``: where a
    piece begins and ends, which of its edges are taken, and where these go."""
    some = sizes > 0
    begins, sizes, at = begins[some], sizes[some], at[some]
    ends, lo = begins + sizes, int(begins[0])
    while True:
        hi = min(lo + piece, int(ends[-1]))
        i, j = int(np.searchsorted(ends, lo, side="right")), int(np.searchsorted(begins, hi, side="left"))
        first = np.maximum(begins[i:j], lo)
        counts = np.minimum(ends[i:j], hi) - first
        before = np.cumsum(counts) - counts
        every = np.arange(counts.sum())
        yield (
            lo,
            hi,
            every + np.repeat(first - lo - before, counts),
            every + np.repeat(at[i:j] + first - begins[i:j] - before, counts),
        )
        if ends[j - 1] > hi:
            lo = hi
        elif j < len(begins):
            lo = int(begins[j])
        else:
            return
