"""Batches as PyG's objects, and a store for code that is built on PyG's abstractions. Importing this module needs
torch_geometric.

::

    features, graph = freshgo.pyg.stores("papers.freshgo", memory="8GiB")
    loader = NeighborLoader((features, graph), num_neighbors=[15, 10], input_nodes=ids, batch_size=1024)

    sampler = freshgo.pyg.sampler(features, num_neighbors=[15, 10])
    loader = NodeLoader((features, graph), sampler, input_nodes=ids, batch_size=1024)

The first keeps the edges in memory, as PyG's sampler does, and reads features from disk. The second also draws from
disk. :class:`freshgo.Loader` reads ahead, plans its cache and needs no such layer; it takes ``(features, graph)``, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from freshgo._args.entry import entry
from freshgo._args.types import EdgeType
from freshgo._batch.pyg_batches import Data, HeteroData
from freshgo._remote.features import StoreFeatures
from freshgo._remote.sampler import StoreSampler
from freshgo._remote.topology import StoreTopology
from freshgo.errors import DTypeError
from freshgo.store import Store

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from freshgo.options import LoaderOptions

__all__ = ["Data", "HeteroData", "sampler", "stores"]


@entry
def stores(
    store: Store | str | os.PathLike[str], **options: Unpack[LoaderOptions]
) -> tuple[StoreFeatures, StoreTopology]:
    """Return a ``torch_geometric.data.FeatureStore`` and a ``GraphStore`` over a store.

    Rows are read when they are asked for, together for all tensors of a type, and checked. ``features[None, "x", ids]``
    reads those of a homogeneous graph, ``features["paper", "x", ids]`` those of a type; an index is a tensor of ids, a
    list, a slice, a mask, or None for all rows. Edges are read whole and stay in memory while PyG has them. They have
    the numbers with which they were converted.

    Both can be pickled, so that loaders with workers open the store in each of them. Workers must be spawned
    (``multiprocessing_context="spawn"``): a process that has used freshgo cannot be forked.

    Args:
        store: a store or its path.
        options: those of :class:`freshgo.Loader` for reading rows: ``memory``, ``cache``, ``feature_cache``,
            ``disk``, ... A cache that is filled once, such as ``cache="degree"``, serves rows that are asked for
            often.

    Raises:
        DTypeError: ``store`` is no store.
        StoreNotFoundError, FormatError, CorruptError, ReadError: as of :meth:`Store.open`.
    """
    if isinstance(store, str | os.PathLike):
        store = Store.open(store)
    if not isinstance(store, Store):
        raise DTypeError(f"store must be a freshgo.Store or its path, got {type(store).__name__}")
    return StoreFeatures(store, {**options}), StoreTopology(store)


@entry
def sampler(
    features: StoreFeatures,
    num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]],
    **options: Unpack[LoaderOptions],
) -> StoreSampler:
    """Return a ``torch_geometric.sampler.BaseSampler`` that draws neighbours from a store.

    PyG's ``NodeLoader`` and ``LinkLoader`` take it with the stores that ``features`` came with. A batch has the nodes
    and edges of :meth:`freshgo.Loader.sample` for its seeds: the same seeds always draw the same neighbours, whatever
    the epoch. Rows that are read on the way are given to ``features``, which then does not read them again.

    Args:
        features: from :func:`stores`.
        num_neighbors: as of :class:`freshgo.Loader`.
        options: further options of :class:`freshgo.Loader`: ``replace``, ``disjoint``, ``time_attr``, ``weight_attr``,
            ``seed``, ``memory``, ``cache``, ...

    Raises:
        DTypeError: ``features`` are not from :func:`stores`.
    """
    if not isinstance(features, StoreFeatures):
        raise DTypeError(f"features must be those of freshgo.pyg.stores(), got {type(features).__name__}")
    return StoreSampler(features, num_neighbors, {**options})
