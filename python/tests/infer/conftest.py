"""Graphs over which models are inferred with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import random_graph
from seeds import seed as seed_of
from torch import Tensor

from freshgo import convert


@pytest.fixture(scope="module")
def flat() -> dict[str, Any]:
    from infer_models import EDGES, NODES  # which needs PyG

    graph = random_graph(NODES, EDGES, seed=4)
    edges = np.concatenate([graph["edge_index"], np.arange(0, NODES, 7)[None].repeat(2, 0)], 1)
    rng = np.random.default_rng(seed_of(3))
    weight = rng.random(edges.shape[1]).astype(np.float32) + 0.1
    kind = rng.integers(0, 3, edges.shape[1])
    return {"num_nodes": NODES, "x": graph["x"], "edge_index": edges, "w": weight, "kind": kind}


@pytest.fixture(scope="module", params=["plain", "relaid"])
def path(request: pytest.FixtureRequest, flat: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "graph"
    how = {"relayout": "community"} if request.param == "relaid" else {}
    convert(flat, path, progress=False, **how).close()
    return path


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Tensor], dict[Any, Tensor]]:
    from infer_models import TYPES

    rng = np.random.default_rng(seed_of(6))
    counts = {"paper": 150, "author": 90}
    graph: dict[Any, Any] = {
        of: {"num_nodes": counts[of], "x": rng.standard_normal((counts[of], width)).astype(np.float32)}
        for of, width in (("paper", 12), ("author", 6))
    }
    for source, name, target in TYPES:
        ends = np.stack([rng.integers(0, counts[source], 500), rng.integers(0, counts[target], 500)])
        graph[source, name, target] = {"edge_index": ends}
    path = tmp_path_factory.mktemp("types") / "graph"
    convert(graph, path, progress=False).close()
    x = {of: torch.from_numpy(graph[of]["x"]) for of in counts}
    return path, x, {of: torch.from_numpy(graph[of]["edge_index"]) for of in TYPES}
