"""What PyG's transforms leave behind is loaded from memory and from a store alike, as PyG's loaders would have it."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from freshgo import Loader, convert, errors

pyg = pytest.importorskip("torch_geometric")
T = pytest.importorskip("torch_geometric.transforms")

warnings.filterwarnings("ignore", category=FutureWarning)

NODES = 24

NO_GRAPH = {
    "BaseTransform": "is the base class",
    "ComposeFilters": "selects among several graphs",
    "ToSLIC": "makes a graph of an image",
    "ToDense": "makes a dense matrix in the place of edges",
}
"""The transforms that do not make a graph of a graph."""

PACKAGES = dict.fromkeys(("KNNGraph", "RadiusGraph", "GridSampling", "RootedRWSubgraph"), "pyg_lib")
"""The transforms that need a package beside PyG, as it is imported; they are skipped where it is missing."""

POINTS = (
    *("KNNGraph", "RadiusGraph", "GridSampling", "RandomJitter", "RandomFlip", "RandomScale", "RandomRotate"),
    *("RandomShear", "SamplePoints", "Distance", "Cartesian", "LocalCartesian", "Spherical", "PointPairFeatures"),
    *("NormalizeRotation", "NormalizeScale", "GenerateMeshNormals", "Delaunay"),
)
UNTYPED = (
    *("SVDFeatureReduction", "RemoveTrainingClasses", "NodePropertySplit", "OneHotDegree", "SIGN", "RootedEgoNets"),
    *("RootedRWSubgraph", "AddLaplacianEigenvectorPE", "AddRandomWalkPE", "AddGPSE", "TwoHop", "FeaturePropagation"),
    *("LargestConnectedComponents", "TargetIndegree", "LocalDegreeProfile", "LineGraph", "LaplacianLambdaMax"),
    *("GCNNorm", "VirtualNode"),
)
REFUSES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(POINTS, ("homogeneous", "heterogeneous")),
    **dict.fromkeys(UNTYPED, ("heterogeneous",)),
    **dict.fromkeys(("GDC", "HalfHop"), ("homogeneous", "heterogeneous")),  # they want edges without attributes
    **dict.fromkeys(("AddMetaPaths", "AddRandomMetaPaths"), ("homogeneous", "points")),
    "FaceToEdge": ("homogeneous",),
}
"""The graphs of :func:`graph` that a transform does not take."""

PLAIN: dict[str, Callable[[], Any]] = {
    "Compose": lambda: T.Compose([T.ToUndirected(), T.AddSelfLoops()]),
    "ToDevice": lambda: T.ToDevice("cpu"),
    "ToSparseTensor": lambda: T.ToSparseTensor(layout=torch.sparse_csr),
    "SVDFeatureReduction": lambda: T.SVDFeatureReduction(2),
    "RemoveTrainingClasses": lambda: T.RemoveTrainingClasses([0]),
    "RandomNodeSplit": lambda: T.RandomNodeSplit(num_splits=3),
    "RandomLinkSplit": lambda: T.RandomLinkSplit(
        edge_types=[("user", "likes", "item")], rev_edge_types=[("item", "rev_likes", "user")]
    ),
    "NodePropertySplit": lambda: T.NodePropertySplit("popularity", [0.3, 0.1, 0.1, 0.2, 0.3]),
    "Pad": lambda: T.Pad(30, 200),
    "OneHotDegree": lambda: T.OneHotDegree(100),
    "KNNGraph": lambda: T.KNNGraph(3),
    "RadiusGraph": lambda: T.RadiusGraph(1.0),
    "SIGN": lambda: T.SIGN(2),
    "AddMetaPaths": lambda: T.AddMetaPaths([[("user", "likes", "item"), ("item", "rev_likes", "user")]]),
    "AddRandomMetaPaths": lambda: T.AddRandomMetaPaths([[("user", "likes", "item"), ("item", "rev_likes", "user")]]),
    "RootedEgoNets": lambda: T.RootedEgoNets(1),
    "RootedRWSubgraph": lambda: T.RootedRWSubgraph(2),
    "AddLaplacianEigenvectorPE": lambda: T.AddLaplacianEigenvectorPE(2),
    "AddRandomWalkPE": lambda: T.AddRandomWalkPE(2),
    "AddGPSE": lambda: _encoded,
    "TwoHop": lambda: _two_hops,
    "FeaturePropagation": lambda: T.FeaturePropagation(torch.zeros(NODES, 3, dtype=torch.bool)),
    "RandomJitter": lambda: T.RandomJitter(0.1),
    "RandomFlip": lambda: T.RandomFlip(0),
    "LinearTransformation": lambda: T.LinearTransformation(torch.eye(3)),
    "RandomScale": lambda: T.RandomScale((0.5, 2.0)),
    "RandomRotate": lambda: T.RandomRotate(10),
    "RandomShear": lambda: T.RandomShear(0.1),
    "FaceToEdge": lambda: T.FaceToEdge(remove_faces=False),
    "SamplePoints": lambda: T.SamplePoints(10),
    "FixedPoints": lambda: T.FixedPoints(10),
    "GridSampling": lambda: T.GridSampling(0.5),
    "LargestConnectedComponents": lambda: T.LargestConnectedComponents(),
    **{
        name: (lambda name=name: getattr(T, name)())
        for name in (
            *("Constant", "NormalizeFeatures", "IndexToMask", "MaskToIndex", "ToUndirected", "TargetIndegree"),
            *("LocalDegreeProfile", "AddSelfLoops", "AddRemainingSelfLoops", "RemoveSelfLoops", "RemoveIsolatedNodes"),
            *("RemoveDuplicatedEdges", "LineGraph", "LaplacianLambdaMax", "GDC", "GCNNorm", "VirtualNode"),
            *("HalfHop", "Distance", "Cartesian", "LocalCartesian", "Polar", "Spherical", "PointPairFeatures"),
            *("Center", "NormalizeRotation", "NormalizeScale", "GenerateMeshNormals", "Delaunay"),
        )
    },
}
"""How each transform is made."""


def _encoded(data: Any) -> Any:
    """What AddGPSE adds, which needs a trained model."""
    data.pestat_GPSE = torch.rand(data.x.size(0), 4)
    return data


def _two_hops(data: Any) -> Any:
    """What TwoHop makes, whose product of sparse matrices crashes in some processes: it leaves edge_weight behind."""
    adjacency = torch.zeros(data.num_nodes, data.num_nodes)
    adjacency[data.edge_index[0], data.edge_index[1]] = 1
    data.edge_index = ((adjacency + adjacency @ adjacency) > 0).nonzero().t().contiguous()
    if "edge_attr" in data:
        data.edge_attr = torch.rand(data.num_edges, 2)
    return data


def graph(kind: str) -> Any:
    """A graph with everything that a transform may look for."""
    g = torch.Generator().manual_seed(3)
    if kind == "heterogeneous":
        data = pyg.data.HeteroData()
        for name, count in (("user", NODES), ("item", 15)):
            data[name].x, data[name].y = torch.rand(count, 3, generator=g), torch.arange(count) % 3
            data[name].mean, data[name].kind = torch.rand(1, 3), name
        likes = torch.stack([torch.randint(NODES, (90,), generator=g), torch.randint(15, (90,), generator=g)])
        data["user", "likes", "item"].edge_index, data["item", "rev_likes", "user"].edge_index = likes, likes.flip(0)
        for edge_type in data.edge_types:
            data[edge_type].edge_attr, data[edge_type].unit = torch.rand(90, 2, generator=g), "stars"
        data.class_weights, data.year = torch.rand(7), 2024
        return data
    ends = torch.randint(NODES, (2, 60), generator=g)
    data = pyg.data.Data(x=torch.rand(NODES, 3, generator=g), y=torch.arange(NODES) % 3)
    data.edge_index = torch.cat([ends, ends.flip(0)], 1)
    data.train_mask = torch.arange(NODES) % 2 == 0
    data.class_weights, data.mean, data.name, data.sizes = torch.rand(7), torch.rand(1, 3), "toy", [1, 2.5, "x"]
    if kind in ("points", "plane"):
        data.pos, data.norm = (torch.rand(NODES, 3 if kind == "points" else 2, generator=g) for _ in range(2))
        data.face = torch.stack([torch.arange(20), torch.arange(1, 21), torch.arange(2, 22)])
    else:
        data.edge_weight, data.edge_attr = torch.rand(120, generator=g), torch.rand(120, 2, generator=g)
    return data


KINDS = ("homogeneous", "heterogeneous", "points", "plane")
REFUSALS = (AttributeError, AssertionError, ValueError)
"""By which a transform of PyG refuses a graph."""


def transformed(name: str) -> Iterator[tuple[str, Any]]:
    """What a transform makes of the graphs that it takes. One that it takes no longer, or now does, is an error."""
    for kind in KINDS[:3] if name != "Polar" else KINDS[3:]:
        refused = kind in REFUSES.get(name, ())
        with warnings.catch_warnings(), pytest.raises(REFUSALS) if refused else contextlib.nullcontext():
            warnings.simplefilter("ignore")
            torch.manual_seed(1)
            made = PLAIN[name]()(graph(kind))
        if refused:
            continue
        if name == "RandomLinkSplit" and kind != "heterogeneous":
            made = T.RandomLinkSplit(split_labels=kind == "points")(graph(kind))
        for data in made if isinstance(made, tuple) else [made]:
            yield kind, data


def outcome(data: Any, nodes: Any) -> Any:
    """The first batch, or the message that nothing was loaded."""
    try:
        with Loader(data, num_neighbors=[3, 2], input_nodes=nodes, batch_size=6, seed=1) as loader:
            return next(iter(loader))
    except errors.FreshgoError as error:
        return str(error)


def same(a: Any, b: Any) -> bool:
    """Whether two values of a batch are equal, in their types too."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and bool(torch.equal(a, b))
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b)


def stores(batch: Any) -> dict[Any, dict[str, Any]]:
    return {store._key: dict(store) for store in batch.stores}


def reference(data: Any, batch: Any) -> dict[Any, dict[str, Any]]:
    """What PyG's loaders select for the nodes and edges of a batch."""
    from torch_geometric.loader.utils import filter_data, filter_hetero_data

    data = copy.copy(data)
    if isinstance(data, pyg.data.HeteroData):
        edges = {edge_type: batch[edge_type] for edge_type in batch.edge_types}
        rows, cols = ({name: of.edge_index[end] for name, of in edges.items()} for end in (0, 1))
        ids = {name: of.e_id for name, of in edges.items()}
        return stores(filter_hetero_data(data, {name: batch[name].n_id for name in batch.node_types}, rows, cols, ids))
    return stores(filter_data(data, batch.n_id, *batch.edge_index, batch.e_id))


def test_every_transform_is_tried() -> None:
    """A new one of PyG belongs into PLAIN, or into NO_GRAPH."""
    assert set(PLAIN).isdisjoint(NO_GRAPH)
    assert set(T.__all__) <= set(PLAIN) | set(NO_GRAPH)


@pytest.mark.usefixtures("without_mkl")
@pytest.mark.parametrize("name", [name for name in PLAIN if name in T.__all__])
def test_transforms(name: str, tmp_path: Path) -> None:
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name], reason=f"{name} needs {PACKAGES[name]}, which is not installed")
    for kind, data in transformed(name):
        nodes = "user" if kind == "heterogeneous" else None
        memory = outcome(data, nodes)
        try:
            with convert(data, tmp_path / "g", memory="64MiB", overwrite=True, progress=False) as store:
                disk = outcome(store, nodes)
        except errors.FreshgoError as error:
            disk = str(error)
        if isinstance(memory, str):
            assert memory == disk
            assert any(repr(attribute) in memory or attribute in memory for of in data.stores for attribute in of)
            assert any(word in memory for word in ("graph_level=", "rename", "expected"))
            continue
        assert not isinstance(disk, str), disk
        one, other = stores(memory), stores(disk)
        assert one.keys() == other.keys()
        for key, values in one.items():
            assert values.keys() == other[key].keys()
            for attribute, value in values.items():
                assert same(value, other[key][attribute]), (kind, key, attribute)
        if "adj_t" in data:
            continue
        for key, values in reference(data, memory).items():
            for attribute, value in values.items():
                if "edge_label" not in attribute:
                    assert same(value, one[key][attribute]), (kind, key, attribute)
