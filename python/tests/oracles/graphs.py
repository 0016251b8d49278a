"""The graphs of the tests, in three forms: homogeneous, with one named node type, and with several node types.

Tests and oracles read every form alike: tensors by node type and edge type, which in a homogeneous graph have no names.
Only what freshgo is given (:func:`handed`) and what it gives back (:func:`by_type`) depend on the form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seeds import seed as seed_of

import freshgo

Graph = dict[Any, dict[str, Any]]
"""The tensors of each node type and of each edge type, with ``num_nodes``, ``splits`` and ``edge_index``."""
EdgeType = tuple[str, str, str]

FORMS = ("homogeneous", "one type", "several types")
UNNAMED: EdgeType = ("", "", "")
CITES, WRITES, BACK = ("paper", "cites", "paper"), ("author", "writes", "paper"), ("paper", "written by", "author")
IN, HAS = ("term", "in", "paper"), ("paper", "has", "term")
NOT_TENSORS = {"num_nodes", "edge_index", "splits"}


def random_graph(num_nodes: int = 3000, num_edges: int = 30_000, seed: int = 0) -> dict[str, Any]:
    """A skewed homogeneous multigraph with self-loops, isolated nodes, and every kind of tensor."""
    rng = np.random.default_rng(seed_of(seed))
    connected = num_nodes - num_nodes // 20  # the last nodes are isolated
    source = (connected * rng.random(num_edges) ** 2).astype(np.int64)
    target = (connected * rng.random(num_edges) ** 1.5).astype(np.int64)
    mask = rng.random(num_nodes) < 0.3
    return {
        "num_nodes": num_nodes,
        "edge_index": np.stack([source, target]),
        "x": rng.standard_normal((num_nodes, 24), dtype=np.float32),
        "y": rng.integers(7, size=num_nodes),
        "half": rng.standard_normal((num_nodes, 5)).astype(np.float16),
        "train_mask": mask,
        "edge_weight": rng.random(num_edges, dtype=np.float32),
        "splits": {"test": np.flatnonzero(~mask)[::2]},
    }


def hetero_graph(scale: int = 400, seed: int = 0) -> Graph:
    """Skewed relations with repeated edges; node types without features, without nodes, and that nothing reaches."""
    rng = np.random.default_rng(seed_of(seed))
    count = {"paper": 3 * scale, "author": 2 * scale, "term": scale // 4, "none": 0, "island": scale // 2}
    graph: Graph = {
        "paper": {
            "x": rng.standard_normal((count["paper"], 24), dtype=np.float32),
            "y": rng.integers(7, size=count["paper"]),
            "train_mask": rng.random(count["paper"]) < 0.3,
        },
        "author": {
            "x": rng.standard_normal((count["author"], 70)).astype(np.float16),
            "age": rng.integers(99, size=(count["author"],)).astype(np.uint8),
            "splits": {"test": rng.permutation(count["author"])[: scale // 2]},
        },
        "term": {"num_nodes": count["term"]},
        "none": {"x": np.zeros((0, 3), np.float32)},
        "island": {"x": rng.random((count["island"], 2))},
    }

    def relate(source: str, relation: str, target: str, edges: int, **tensors: Any) -> None:
        ends = [(count[t] * rng.random(edges) ** 1.7).astype(np.int64) for t in (source, target)]
        graph[source, relation, target] = {"edge_index": np.stack(ends), **tensors}

    relate("author", "writes", "paper", 9 * scale, weight=rng.random(9 * scale, dtype=np.float32))
    relate("paper", "cites", "paper", 12 * scale, time=rng.integers(99, size=12 * scale))
    relate("paper", "written by", "author", 8 * scale)
    relate("term", "in", "paper", 5 * scale, weight=rng.random(5 * scale), attr=rng.random((5 * scale, 3)))
    relate("paper", "has", "term", 6 * scale)
    relate("author", "knows", "author", 0)
    relate("none", "of", "paper", 0, attr=np.zeros((0, 2), np.float32))
    relate("paper", "to", "island", scale)
    return graph


def as_types(graph: dict[Any, Any], node_type: str = "", edge_type: EdgeType = UNNAMED) -> Graph:
    """A graph as tensors by type, which it may be already: those of a homogeneous one under these names."""
    if "edge_index" not in graph:
        return graph
    num_edges = graph["edge_index"].shape[1]
    parts: Graph = {node_type: {}, edge_type: {}}
    for name, value in graph.items():
        of_edges = name == "edge_index" or (name not in NOT_TENSORS and len(value) == num_edges)
        parts[edge_type if of_edges else node_type][name] = value
    return parts


def handed(graph: Graph) -> dict[Any, Any]:
    """A graph as freshgo takes it: a homogeneous one is a mapping of its tensors."""
    return {**graph[""], **graph[UNNAMED]} if "" in graph else graph


def num_nodes(graph: Graph) -> dict[str, int]:
    """The number of nodes of every type."""
    return {
        key: part["num_nodes"] if "num_nodes" in part else len(part["x"])
        for key, part in graph.items()
        if isinstance(key, str)
    }


def relations(graph: Graph) -> list[EdgeType]:
    """The edge types, in order."""
    return [key for key in graph if isinstance(key, tuple)]


def edge_times(graph: Graph, name: str | None) -> dict[EdgeType, Any]:
    """The time of every edge of the relations that have any, of their own or by their sources."""
    found = {}
    for relation in relations(graph):
        if name in graph[relation]:
            found[relation] = graph[relation][name]
        elif name in graph[relation[0]]:
            found[relation] = graph[relation[0]][name][graph[relation]["edge_index"][0]].astype(np.int64)
    return found


def pyg_data(graph: Graph) -> Any:
    """The same as PyG's Data or HeteroData; splits become masks."""
    from torch_geometric.data import Data, HeteroData

    def tensors(part: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, value in part.items():
            if isinstance(value, np.ndarray):
                yield name, torch.from_numpy(np.ascontiguousarray(value))
            elif name != "splits":
                yield name, value

    counts = num_nodes(graph)
    parts = {key: dict(tensors(part)) for key, part in graph.items()}
    for key, count in counts.items():
        for split, ids in graph[key].get("splits", {}).items():
            parts[key][f"{split}_mask"] = torch.from_numpy(np.isin(np.arange(count), ids))
    if "" in graph:
        return Data(**handed(parts))
    data = HeteroData()
    for key, part in parts.items():
        for name, value in part.items():
            data[key][name] = value
    return data


class Part(dict[str, Any]):
    """What a batch has of a type."""

    __getattr__ = dict.__getitem__


class Parts(dict[Any, Part]):
    """A batch by type."""

    def __init__(self, parts: dict[Any, Part]) -> None:
        super().__init__(parts)
        self.node_types = [key for key in parts if isinstance(key, str)]
        self.edge_types = [key for key in parts if isinstance(key, tuple)]


def _of_homogeneous(batch: Any, graph: Graph) -> Parts:
    """The tensors of a batch by the two types of a homogeneous graph."""
    of_edges = {"edge_index", "e_id", "num_sampled_edges", "edge_weight"} | set(graph[UNNAMED])
    if "edge_label_index" in batch or "src_index" in batch:
        of_edges |= {"input_id", "batch_size", "edge_label", "edge_label_index", "edge_label_time"}
    parts = {"": Part(), UNNAMED: Part()}
    for name in batch.keys():  # noqa: SIM118  (a PyG Data is no mapping)
        parts[UNNAMED if name in of_edges else ""][name] = batch[name]
    return Parts(parts)


def by_type(batch: Any, graph: Graph) -> Any:
    """A batch by type, whatever the form of its graph."""
    return batch if hasattr(batch, "node_types") else _of_homogeneous(batch, graph)


class Form:
    """A graph in one of the forms, in memory and, when it is first asked for, on disk."""

    def __init__(self, form: str, graph: Graph, directory: Path) -> None:
        self.form, self.graph, self._directory = form, graph, directory
        self.node_type: str = next(iter(graph))
        self.relations = relations(graph)
        self.data = handed(graph)
        within = (self.node_type, self.node_type)
        self.within = next(r for r in self.relations if (r[0], r[2]) == within)
        """The first relation from the first node type to itself."""

        self.weight = "edge_weight" if "edge_weight" in graph[self.within] else "weight"
        """The tensor of the weights of edges, which of several types some relations have."""

    def __repr__(self) -> str:
        return self.form

    @cached_property
    def path(self) -> Path:
        path = self._directory / "graph.freshgo"
        freshgo.convert(self.data, path, progress=False).close()
        return path

    @property
    def several(self) -> bool:
        return self.form == "several types"

    handed = staticmethod(handed)

    @staticmethod
    def bare(by_type: dict[Any, Any]) -> Any:
        """Values by type as freshgo takes them: of a homogeneous graph the only one, alone."""
        return next(iter(by_type.values())) if next(iter(by_type)) in ("", UNNAMED) else by_type

    def of_nodes(self, given: Any) -> dict[str, Any]:
        """What freshgo gives by node type: in a homogeneous graph the only one, alone."""
        return given if self.node_type else {"": given}

    def inputs(self, nodes: Any = None) -> Any:
        """Input nodes of the first node type as a loader takes them."""
        return (self.node_type, nodes) if self.node_type else nodes

    def links(self, links: Any = None, relation: EdgeType | None = None) -> Any:
        """Links of a relation as a LinkLoader takes them."""
        return (relation or self.within, links) if self.node_type else links

    def fanouts(self, hops: list[int]) -> dict[EdgeType, list[int]]:
        return dict.fromkeys(self.relations, hops)

    def by_type(self, batch: Any) -> Any:
        return by_type(batch, self.graph)

    def batches(self, loader: Any) -> list[Any]:
        return [self.by_type(batch) for batch in loader]


def form_of(form: str, flat: Callable[[], dict[str, Any]], hetero: Callable[[], Graph], directory: Path) -> Form:
    """A form of a graph: ``flat`` makes the homogeneous one, which also serves with names, ``hetero`` the other."""
    if form == "several types":
        return Form(form, hetero(), directory)
    names = () if form == "homogeneous" else ("paper", CITES)
    return Form(form, as_types(flat(), *names), directory)


def forms(flat: Callable[[], dict[str, Any]], hetero: Callable[[], Graph], scope: Any = "module") -> Any:
    """A fixture: a graph in each of its forms, one after the other."""

    @pytest.fixture(scope=scope, params=FORMS)
    def form(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Form:
        return form_of(request.param, flat, hetero, tmp_path_factory.mktemp("form"))

    return form
