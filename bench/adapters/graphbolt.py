"""GraphBolt (DGL 2.1 or newer): in memory, or from disk through io_uring with a cache of SIEVE where it has these.

DGL's wheels of the Python index end at 2.1.0, which wants PyTorch 2.2, torchdata 0.7 and NumPy 1 and reads features on disk
through a memory map. DGL 2.4, built from source, has DiskBasedFeature and cpu_cached_feature.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec

from serve import Batch, Graph, serve

NAME = "GraphBolt"


def obstacle() -> str | None:
    """Say what is missing."""
    return None if find_spec("dgl") else "there is no dgl: pip install dgl==2.1.0 'torch==2.2.1' 'torchdata==0.7.1'"


def make(graph: Graph) -> Callable[[], Iterator[Batch]]:
    """Open its data pipe."""
    os.environ.setdefault("DGLBACKEND", "pytorch")
    import dgl.graphbolt as gb
    import torch

    warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nothing is written to
    torch.set_num_interop_threads(max(4, os.cpu_count() or 1))  # it waits for ever with a single one
    path = graph.folder / "x.npy"
    if graph.on_disk and hasattr(gb, "DiskBasedFeature"):
        feature = gb.DiskBasedFeature(str(path))
        feature = gb.cpu_cached_feature(feature, graph.cache, policy="sieve")
    else:
        feature = gb.TorchBasedFeature(torch.from_numpy(graph.x[:] if graph.on_disk else graph.x[:].copy()))
    seeds = "seeds" if hasattr(gb, "DiskBasedFeature") else "seed_nodes"  # the name changed meanwhile
    items = gb.ItemSet(torch.from_numpy(graph.seeds), names=seeds)
    fanouts = list(reversed(graph.num_neighbors))  # its last is that of the input nodes
    owner, keys, typed = None, ["x"], {}
    if graph.types:
        nodes, edges, owner = (graph.types[key] for key in ("nodes", "edges", "owner"))
        keys, typed = (
            {owner: ["x"]},
            {
                "node_type_offset": torch.tensor(list(itertools.accumulate(nodes.values(), initial=0))),
                "type_per_edge": torch.from_numpy(graph.edge_types),
                "node_type_to_id": {name: place for place, name in enumerate(nodes)},
                "edge_type_to_id": {name: place for place, name in enumerate(edges)},
            },
        )
        items = (gb.HeteroItemSet if hasattr(gb, "HeteroItemSet") else gb.ItemSetDict)({owner: items})
        fanouts = [
            torch.full((len(edges),), fanout) for fanout in fanouts
        ]  # one number would be for all types together
    store = gb.BasicFeatureStore({("node", owner, "x"): feature})
    topology = gb.fused_csc_sampling_graph(torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices), **typed)
    pipe = gb.ItemSampler(items, graph.batch_size, shuffle=True)
    pipe = pipe.sample_neighbor(topology, fanouts)
    pipe = pipe.fetch_feature(store, node_feature_keys=keys)
    loader = gb.DataLoader(pipe, num_workers=0)

    def epoch() -> Iterator[Batch]:
        for batch in loader:
            nodes = batch.input_nodes() if callable(batch.input_nodes) else batch.input_nodes
            yield (nodes[owner] if owner else nodes), batch.node_features[(owner, "x") if owner else "x"]

    return epoch


if __name__ == "__main__":
    serve(NAME, obstacle, make)
