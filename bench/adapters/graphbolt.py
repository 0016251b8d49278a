"""GraphBolt (DGL 2.1 or newer): in memory, or from disk through io_uring with a cache of SIEVE where it has these.

DGL's wheels of the Python index end at 2.1.0, which wants PyTorch 2.2, torchdata 0.7 and NumPy 1 and reads features on disk
through a memory map. DGL 2.4, built from source, has DiskBasedFeature and cpu_cached_feature.
"""

from __future__ import annotations

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
    store = gb.BasicFeatureStore({("node", None, "x"): feature})
    topology = gb.fused_csc_sampling_graph(torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices))
    seeds = "seeds" if hasattr(gb, "DiskBasedFeature") else "seed_nodes"  # the name changed meanwhile
    pipe = gb.ItemSampler(gb.ItemSet(torch.from_numpy(graph.seeds), names=seeds), graph.batch_size, shuffle=True)
    pipe = pipe.sample_neighbor(topology, list(reversed(graph.num_neighbors)))  # its last is that of the input nodes
    pipe = pipe.fetch_feature(store, node_feature_keys=["x"])
    loader = gb.DataLoader(pipe, num_workers=0)

    def epoch() -> Iterator[Batch]:
        for batch in loader:
            nodes = batch.input_nodes
            yield (nodes() if callable(nodes) else nodes), batch.node_features["x"]

    return epoch


if __name__ == "__main__":
    serve(NAME, obstacle, make)
