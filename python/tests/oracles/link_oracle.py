"""Links for the tests, and how tests read batches of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from graphs import EdgeType, Graph, num_nodes
from seeds import seed as seed_of

OPTIONS: dict[str, Any] = {"batch_size": 64, "shuffle": True, "seed": 7}


def links_of(graph: Graph, of: EdgeType, count: int = 230, seed: int = 5) -> torch.Tensor:
    """Edges of a relation, and pairs that are mostly none."""
    rng = np.random.default_rng(seed_of(seed))
    edges = graph[of]["edge_index"]
    counts = num_nodes(graph)
    others = np.stack([rng.integers(counts[of[0]], size=40), rng.integers(counts[of[2]], size=40)])
    return torch.from_numpy(np.concatenate([edges[:, rng.permutation(edges.shape[1])[:count]], others], axis=1))


def ends(batch: Any, of: EdgeType) -> tuple[Any, Any]:
    """The nodes of all links and negatives of a batch, links first, within their types."""
    sources, targets = batch[of[0]].n_id, batch[of[2]].n_id
    if "src_index" in batch[of[0]]:
        src, pos, neg = batch[of[0]].src_index, batch[of[2]].dst_pos_index, batch[of[2]].dst_neg_index
        amount = neg.numel() // src.numel()
        source, target = torch.cat([src, src.repeat_interleave(amount)]), torch.cat([pos, neg.view(-1)])
    else:
        source, target = batch[of].edge_label_index
    return sources[source].numpy(), targets[target].numpy()


def pairs(source: Any, target: Any) -> set[tuple[int, int]]:
    return set(zip(source.tolist(), target.tolist(), strict=True))
