"""Storing rows in the order in which they are used."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.choices import ORDERS, Metric, Order
from freshgo._args.entry import entry
from freshgo._args.progress import Progress, progress_of
from freshgo._args.size import parse_size
from freshgo._args.types import EdgeType
from freshgo._native import convert as native_convert
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.policies import Hotness, resolve
from freshgo.store import Store, opened, written

if TYPE_CHECKING:
    import numpy as np

    Scores = Tensor | np.ndarray[Any, Any]


@entry
def relayout(
    store: Store | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    order: Order = "hot+community",
    hotness: Metric | Hotness | Scores | Mapping[str, Scores] | None = None,
    num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]] | None = None,
    input_nodes: Any = None,
    batch_size: int = 1024,
    hot_rows: int | None = None,
    memory: int | str = "1GiB",
    overwrite: bool = False,
    progress: bool | Progress = True,
) -> Store:
    """Write a copy of ``store`` at ``path`` whose node tensors are stored in another order, and open it.

    A row of 512 bytes that is not in memory costs a read of a page of 4 KiB. If the rows that batches use lie together,
    each page brings several of them, and the loader reads much of the data in sequence. Node ids, batches, splits and
    whole tensors do not change. In a heterogeneous graph one order is made over the nodes of all types, and the rows of
    each type are stored in it.

    Everything is read and written in sequence, within ``memory``. A node tensor is read once for each part of it that
    fits into the memory, and written once; from the fourth time on it is read, written, read back and written instead.
    The store appears whole or not at all. On disk this needs the new store and, for tensors of more than three times
    the memory, once the largest of them.

    Args:
        store: an open store, or the path of one; it may itself be relaid out.
        path: the directory to create. It may be that of ``store``, with ``overwrite``.
        order: ``"hot"``: by decreasing hotness. ``"community"``: nodes that are drawn for the same target are
            neighbours. ``"hot+community"``: first the hottest rows by hotness, then the others in classes of similar
            hotness, each by community; the best for most caches.
        hotness: a score for every node (a real vector ``[num_nodes]``, finite and not negative; in a heterogeneous
            graph a mapping from every node type to its vector, on one scale), or a metric, as for
            :func:`freshgo.hotness`. None is ``"expected"`` if ``num_neighbors`` is given, else ``"degree"``. The best
            is ``"expected"`` for the training that is to come.
        num_neighbors: for ``"expected"`` and ``"presc"``, as for the loader that will be used.
        input_nodes: for these two, as for the loader that will be used; None is every node of a homogeneous graph.
        batch_size: for these two, as for the loader that will be used.
        hot_rows: for ``"hot+community"``, how many rows, of all node types together, are laid out by hotness alone. The
            best number is what the cache will hold, and too few are better than too many; None is a fiftieth of all.
        memory: bytes, or a string such as ``"8GiB"``. The order needs 12 bytes a node.
        overwrite: replace a store that is at ``path``; it stays valid until the new one is complete.
        progress: show a bar, then what was written; or a callable, called with ``(stage, done, total)``, in bytes.

    Raises:
        InvalidArgumentError, DTypeError: an invalid order, metric or scores; 2^32 nodes or more.
        StoreNotFoundError, FormatError, CorruptError: ``store`` is missing or damaged; every page is checked.
        StoreExistsError: ``path`` exists and ``overwrite`` is false.
        BudgetError: ``memory`` is too small; the message and ``minimum`` name the smallest that works or, if the
            hotness is still to be computed, more than was given.
        BusyError: another process is writing to ``path``.
        StorePermissionError, WriteError, ReadError: the operating system refused, the disk is full, ...
    """
    wanted = Relayout.of(
        {
            "order": order,
            "hotness": hotness,
            "num_neighbors": num_neighbors,
            "input_nodes": input_nodes,
            "batch_size": batch_size,
            "hot_rows": hot_rows,
        }
    )
    n_bytes = parse_size("memory", memory)
    with opened(store) as source:
        scores = wanted.scores(source, n_bytes)
        with progress_of(progress) as report:
            native_convert.relayout(
                source._contents.native,
                path,
                order=wanted.order,
                scores=scores,
                hot_rows=wanted.hot_rows,
                memory=n_bytes,
                overwrite=overwrite,
                progress=report,
            )
            return written(path, report)


@dataclasses.dataclass(frozen=True, eq=False)
class Relayout:
    """The choices of a relayout that do not depend on the store."""

    order: Order
    hotness: Hotness
    num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]] | None
    input_nodes: Any
    batch_size: int
    hot_rows: int | None

    @classmethod
    def of(cls, options: str | Mapping[str, Any]) -> Relayout:
        """Check options of :func:`relayout`, or an order alone."""
        if isinstance(options, str):
            options = {"order": options}
        if not isinstance(options, Mapping):
            raise DTypeError(
                f"relayout must be an order ({', '.join(map(repr, ORDERS))}) or a mapping with options of "
                f"freshgo.relayout, got {type(options).__name__}"
            )
        known = [field.name for field in dataclasses.fields(cls)]
        for name in options:
            checks.choice("an option of relayout", name, known)
        num_neighbors, input_nodes = options.get("num_neighbors"), options.get("input_nodes")
        hotness: Any = options.get("hotness")
        if hotness is None:
            if input_nodes is not None and num_neighbors is None:
                raise InvalidArgumentError("input_nodes needs num_neighbors: nothing is sampled without it")
            hotness = "degree" if num_neighbors is None else "expected"
        if not isinstance(hotness, Hotness):
            hotness = Hotness(hotness)
        if hotness.metric == "oracle":
            raise InvalidArgumentError(
                "hotness='oracle' needs the counts of an epoch that is still to come; use 'presc'"
            )
        if hotness.metric in ("expected", "presc") and num_neighbors is None:
            raise InvalidArgumentError(f"{hotness.metric!r} depends on what is sampled: give num_neighbors")
        hot_rows = options.get("hot_rows")
        return cls(
            order=checks.choice("order", options.get("order", "hot+community"), Order),
            hotness=hotness,
            # A mapping is for the edge types of a heterogeneous graph: it is checked where these are known.
            num_neighbors=num_neighbors
            if num_neighbors is None or isinstance(num_neighbors, Mapping)
            else checks.fanouts(num_neighbors),
            input_nodes=input_nodes,
            batch_size=checks.count("batch_size", options.get("batch_size", 1024), 1),
            hot_rows=None if hot_rows is None else checks.count("hot_rows", hot_rows, 0),
        )

    def scores(self, store: Store, memory: int) -> Tensor:
        """Return a score for every node of the store, one node type after the other: float32 ``[num_nodes]``."""
        counts = store.num_nodes_dict
        if isinstance(self.hotness.scores, dict) and not counts:
            raise DTypeError("hotness must be a metric or a vector of scores in a homogeneous graph, got a dict")
        if isinstance(self.hotness.scores, Tensor) and counts:
            raise DTypeError(
                f"hotness must be a metric or a dict of scores by node type, {', '.join(map(repr, counts))}, in a "
                "heterogeneous graph, got a vector"
            )
        if self.hotness.scores is not None:
            resolved = resolve("hotness", self.hotness).of_types(counts or {"": store.num_nodes})
            resolved.check_nodes(store.num_nodes)
            assert resolved.scores is not None  # there were some
            return resolved.scores
        from freshgo.lab import hotness

        assert self.hotness.metric is not None  # there are no scores
        scores = hotness(
            store,
            self.hotness.metric,
            num_neighbors=self.num_neighbors,
            input_nodes=self.input_nodes,
            batch_size=self.batch_size,
            k=self.hotness.k,
            seed=self.hotness.seed,
            memory=memory,
        )
        return torch.cat(list(scores.values())) if counts else cast(Tensor, scores)
