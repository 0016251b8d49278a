"""PyG's BaseSampler over a store: neighbours are drawn by freshgo, from lists on disk."""

from __future__ import annotations

from typing import Any

from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample

from freshgo._remote.features import StoreFeatures
from freshgo._remote.reader import Reader
from freshgo.errors import InvalidArgumentError
from freshgo.store import Store


class StoreSampler(BaseSampler):  # type: ignore[misc]  # PyG has no type hints
    """Draws neighbours for PyG's ``NodeLoader`` and ``LinkLoader``. It keeps the rows that it reads with them for the
    FeatureStore that it was made with."""

    def __init__(self, features: StoreFeatures, num_neighbors: Any, options: dict[str, Any]) -> None:
        self._features, self._num_neighbors, self._options = features, num_neighbors, options
        self._reader = Reader(features.store, num_neighbors, options)

    @property
    def _store(self) -> Store:
        return self._features.store

    def sample_from_nodes(self, index: Any, **kwargs: Any) -> Any:
        """Draw around nodes."""
        return node_sample(index, self._sample)

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        """Draw around the ends of links, and of negatives that PyG draws."""
        nodes = self._store.num_nodes_dict or self._store.num_nodes
        disjoint = bool(self._options.get("disjoint"))
        times = None
        if neg_sampling is not None and self._options.get("time_attr") is not None:
            raise InvalidArgumentError("negatives in time are drawn by freshgo.LinkLoader, not by this sampler")
        return edge_sample(index, self._sample, nodes, disjoint, times, neg_sampling)

    @property
    def edge_permutation(self) -> None:
        """None: edges have the numbers with which they were converted."""
        return

    def close(self) -> None:
        """Close what draws; the store stays open."""
        self._reader.close()

    def _sample(self, seed: Any, seed_time: Any = None, **kwargs: Any) -> Any:
        batch = self._reader.sample(seed, seed_time)
        return self._typed(batch) if self._store.node_types else self._plain(batch)

    def _plain(self, batch: Any) -> Any:
        self._features.keep(batch.n_id, batch)
        return SamplerOutput(
            node=batch.n_id,
            row=batch.edge_index[0],
            col=batch.edge_index[1],
            edge=batch.e_id if "e_id" in batch else None,
            batch=getattr(batch, "batch", None),
            num_sampled_nodes=_numbers(batch.num_sampled_nodes),
            num_sampled_edges=_numbers(batch.num_sampled_edges),
        )

    def _typed(self, batch: Any) -> Any:
        nodes = {node_type: batch[node_type] for node_type in self._store.node_types}
        edges = {edge_type: batch[edge_type] for edge_type in self._store.edge_types}
        for of in nodes.values():
            self._features.keep(of.n_id, of)
        trees = {name: of.batch for name, of in nodes.items() if getattr(of, "batch", None) is not None}
        return HeteroSamplerOutput(
            node={name: of.n_id for name, of in nodes.items()},
            row={name: of.edge_index[0] for name, of in edges.items()},
            col={name: of.edge_index[1] for name, of in edges.items()},
            edge={name: of.e_id if "e_id" in of else None for name, of in edges.items()},
            batch=trees or None,
            num_sampled_nodes={name: _numbers(of.num_sampled_nodes) for name, of in nodes.items()},
            num_sampled_edges={name: _numbers(of.num_sampled_edges) for name, of in edges.items()},
        )

    def __reduce__(self) -> Any:
        return StoreSampler, (self._features, self._num_neighbors, self._options)


def _numbers(counts: Any) -> list[int]:
    return [int(count) for count in counts]
