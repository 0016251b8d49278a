"""What belongs to a graph as a whole: every batch has it, from memory and from a store; and what decides that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import freshgo
from freshgo import Batch, HeteroBatch, LinkLoader, Loader, Store, convert, errors, update, with_levels
from freshgo._args import whole

QUIET: dict[str, Any] = {"memory": "64MiB", "progress": False, "overwrite": True}
WRITES = ("author", "writes", "paper")

VALUES: dict[str, Any] = {
    "class_weights": torch.rand(7),
    "mean": torch.rand(1, 2),
    "train_idx": torch.tensor([3, 1]),
    "scalar": torch.tensor(2.5, dtype=torch.bfloat16),
    "empty": torch.zeros(0, 4, dtype=torch.int32),
    "spectrum": torch.view_as_complex(torch.rand(3, 2)),
    "strided": torch.arange(12).view(3, 4).t()[::2],
    "flags": torch.tensor([True, False, True]),
    "array": np.arange(6, dtype=np.float32).reshape(2, 3),
    "number": np.float64(0.5),
    "seed": 7,
    "rate": float("inf"),
    "public": True,
    "name": "toy graph",
    "sizes": [1, 2.5, "x", None, [torch.tensor([1, 2]), ()]],
    "shape": (3, (4, "y")),
    "options": {"a": {1: torch.ones(2)}, "b": []},
}


def graph(**more: Any) -> dict[str, Any]:
    g = torch.Generator().manual_seed(1)
    return {"x": torch.rand(30, 4, generator=g), "edge_index": torch.randint(30, (2, 90), generator=g), **more}


def typed(**more: Any) -> dict[Any, Any]:
    g = torch.Generator().manual_seed(1)
    ends = torch.stack([torch.randint(20, (50,), generator=g), torch.randint(30, (50,), generator=g)])
    return {
        "paper": {"x": torch.rand(30, 4, generator=g), "class_weights": torch.rand(7), "venue": "KDD"},
        "author": {"num_nodes": 20, "mean": torch.rand(1, 4)},
        WRITES: {"edge_index": ends, "edge_attr": torch.rand(50, 2), "scale": torch.rand(2, 3), "unit": ["a", 1]},
        "_global_store": {"year": 2024, "table": torch.rand(3, 3)},
        **more,
    }


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray | np.generic):
        return isinstance(b, np.ndarray | np.generic) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and bool(a == b)


def test_every_kind_of_value_comes_with_every_batch(tmp_path: Path) -> None:
    data = graph(**VALUES)
    with convert(data, tmp_path / "g", **QUIET) as store:
        store.verify()
        assert list(store.tensors) == ["x"]
        kept = store.attributes()
        assert kept.keys() == VALUES.keys()
        for source in (store, data):
            for loader in (Loader(source, [2], batch_size=20), LinkLoader(source, [2], batch_size=80)):
                with loader:
                    for batch in loader:
                        for name, value in VALUES.items():
                            assert same(batch[name], value), name
                            assert same(kept[name], value), name


def test_types_and_the_whole_of_a_heterogeneous_graph(tmp_path: Path) -> None:
    data = typed()
    with convert(data, tmp_path / "g", **QUIET) as store:
        assert same(store.attributes(), data["_global_store"])
        for key, names in (("paper", ["class_weights", "venue"]), ("author", ["mean"]), (WRITES, ["scale", "unit"])):
            assert same(store.attributes(key), {name: data[key][name] for name in names})
        with pytest.raises(errors.InvalidArgumentError, match="no node type 'venue'"):
            store.attributes("venue")
        for source in (store, data):
            with Loader(source, [2], "paper", batch_size=20) as loader:
                for batch in loader:
                    assert batch.year == 2024
                    assert same(batch.table, data["_global_store"]["table"])
                    assert same(batch["paper"].class_weights, data["paper"]["class_weights"])
                    assert batch["paper"].venue == "KDD"
                    assert same(batch["author"].mean, data["author"]["mean"])
                    assert same(batch[WRITES].scale, data[WRITES]["scale"])
                    assert batch[WRITES].unit == ["a", 1]


def test_stores_that_follow_keep_them(tmp_path: Path) -> None:
    convert(graph(**VALUES), tmp_path / "g", relayout="community", **QUIET).close()
    store = update(tmp_path / "g", tmp_path / "h", drop=["x"], tensors={"z": torch.rand(30)}, **QUIET)
    store = freshgo.append(store, tmp_path / "i", nodes={"z": torch.rand(2)}, edges=torch.tensor([[31], [0]]), **QUIET)
    assert same(store.attributes(), VALUES)


def test_batches_without_pyg_carry_them_to_a_device() -> None:
    table, sizes = torch.rand(3), [1, torch.rand(2)]
    moved = Batch(n_id=torch.arange(3), table=table, sizes=sizes, name="x").to("meta")
    assert (moved.table.device.type, moved.sizes[1].device.type, moved.sizes[0], moved.name) == ("meta", "meta", 1, "x")
    hetero = HeteroBatch({"a": freshgo.TypeBatch(n_id=torch.arange(2))}, {"table": table, "year": 3}).to("meta")
    assert (hetero.table.device.type, hetero.year) == ("meta", 3)
    with pytest.raises(AttributeError, match="no 'other'"):
        _ = hetero.other


def test_memory_of_attributes_counts(tmp_path: Path) -> None:
    words = r'^memory="4MiB" is too small: these options need at least [\d.]+ MiB;'
    with convert(graph(table=torch.rand(1 << 20)), tmp_path / "g", **QUIET) as store:
        with pytest.raises(errors.BudgetError, match=words) as caught:
            Loader(store, [2], memory="4MiB")
        assert "attributes of the graph as a whole take 4.0 MiB of it" in str(caught.value)
        Loader(store, [2], memory=caught.value.minimum).close()


def test_a_description_that_is_none(tmp_path: Path) -> None:
    def described(entries: Any) -> torch.Tensor:
        return torch.tensor(list(json.dumps(entries).encode()), dtype=torch.uint8)

    good = whole.read(described([["", "a", {"list": [1, {"tuple": []}]}], [None, "b", 2]]), lambda _: torch.ones(1))
    assert good == {"": {"a": [1, ()]}, None: {"b": 2}}
    for bad in (3, [3], [["", "a"]], [["", "a", {"none": 1}]], [["", "a", {"tensor": {"in": "x"}}]], [["", "a", {}]]):
        with pytest.raises(errors.FormatError, match="attributes is not valid"):
            whole.read(described(bad), lambda _: torch.ones(1))


@pytest.mark.parametrize("name", ["x", "pos", "val_mask", "edge_attr", "edge_weight", "time", "y"])
def test_a_name_of_nodes_or_edges_with_other_rows_is_refused(name: str, tmp_path: Path) -> None:
    rows = torch.ones(5, dtype=torch.bool) if name == "val_mask" else torch.ones(5)
    data = {"edge_index": torch.randint(30, (2, 90)), "num_nodes": 30, name: rows}
    for read in (lambda: convert(data, tmp_path / "g", **QUIET), lambda: Loader(data, [2])):
        with pytest.raises(errors.InvalidArgumentError, match=rf"'{name}' has shape \[5\].*graph_level=\['{name}'\]"):
            read()
    with convert(data, tmp_path / "g", graph_level=[name], **QUIET) as store:
        assert store.tensors == {}
        assert same(store.attributes(), {name: rows})
    with Loader(with_levels(data, graph_level=[name]), [2]) as loader:
        assert same(next(iter(loader))[name], rows)


def test_what_is_of_the_graph_does_not_tell_the_number_of_nodes() -> None:
    """A `pos` of the graph made the graph one of as many nodes as it had rows."""
    edges, pos = torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.rand(7)
    typed = {"a": {"pos": pos, "x": torch.rand(5, 2)}, ("a", "to", "a"): {"edge_index": edges}}
    alone = {"a": {"pos": pos}, ("a", "to", "a"): {"edge_index": edges}}
    homogeneous = {"edge_index": edges, "pos": pos, "feat": torch.rand(5, 2)}
    for data, nodes, inputs in ((homogeneous, 5, None), (typed, 5, "a"), (alone, 4, "a")):
        with Loader(with_levels(data, graph_level=["pos"]), [-1], inputs, batch_size=9) as loader:
            batch: Any = next(iter(loader))
        of = batch if inputs is None else batch[inputs]
        assert of.num_nodes == nodes and of.pos.equal(pos)


def test_labels_of_graphs_are_of_the_whole() -> None:
    pyg = pytest.importorskip("torch_geometric.data")
    g = torch.Generator().manual_seed(1)
    parts = [
        pyg.Data(x=torch.rand(4, 2), edge_index=torch.randint(4, (2, 9), generator=g), y=torch.tensor([i]), tag=f"g{i}")
        for i in range(3)
    ]
    data = pyg.Batch.from_data_list(parts)
    for disjoint in (False, True):
        with Loader(data, [2], batch_size=12, disjoint=disjoint) as loader:
            batch = next(iter(loader))
            assert (batch.ptr.tolist(), batch.y.tolist(), batch.tag) == ([0, 4, 8, 12], [0, 1, 2], ["g0", "g1", "g2"])
            # As in PyG, batch.batch is that of disjoint trees, and nothing without them; ptr tells the graphs.
            assert (batch.batch is None) == (not disjoint)
            graphs = torch.bucketize(batch.n_id, batch.ptr[1:], right=True)
            assert graphs.equal(data.batch[batch.n_id])
            if disjoint:
                assert batch.batch[: batch.batch_size].equal(torch.arange(12))


def test_batches_of_heterogeneous_graphs(tmp_path: Path) -> None:
    pyg = pytest.importorskip("torch_geometric.data")
    parts = []
    for _ in range(2):
        data = pyg.HeteroData()
        data["a"].x, data["b"].num_nodes = torch.rand(5, 2), 3
        data["a", "to", "b"].edge_index = torch.tensor([[0, 4], [2, 1]])
        parts.append(data)
    joined = pyg.Batch.from_data_list(parts)
    with convert(joined, tmp_path / "g", **QUIET) as store:
        for source in (store, joined):
            with Loader(source, [2], "b") as loader:
                batch = next(iter(loader))
                assert (batch["a"].ptr.tolist(), batch["b"].ptr.tolist()) == ([0, 5, 10], [0, 3, 6])


# As many edges as nodes.

SQUARE = {"edge_index": torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), "x": torch.rand(4, 2), "cost": torch.rand(4)}


def levels(store: Store) -> dict[str, str]:
    return {name: info.level for name, info in store.tensors.items()}


def test_a_batch_that_a_transform_has_cut_says_so(tmp_path: Path) -> None:
    pyg = pytest.importorskip("torch_geometric.data")
    batch = pyg.Batch.from_data_list([pyg.Data(**graph(), num_nodes=30) for _ in range(2)])
    cut = batch.subgraph(torch.arange(50))
    words = "ptr says where the graphs of a batch begin and ends with 60, but there are 50 nodes, .*: delete it"
    with pytest.raises(errors.InvalidArgumentError, match=words):
        Loader(cut, [2])
    with pytest.raises(errors.InvalidArgumentError, match=words):
        convert(cut, tmp_path / "g", **QUIET)
    del cut.ptr
    with Loader(cut, [2]) as loader:
        assert len(loader) == 50


def test_graphs_of_a_class_of_its_own(tmp_path: Path) -> None:
    """``__cat_dim__`` says along which dimension nodes are, or that a tensor is of the graph as a whole."""
    pyg = pytest.importorskip("torch_geometric.data")

    class Own(pyg.Data):  # type: ignore[misc]
        def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
            own = {"target": None, "columns": 1, "last": -1}
            return own[key] if key in own else super().__cat_dim__(key, value, *args, **kwargs)

    target = torch.rand(30)
    data = Own(**graph(), target=target)
    for source in (data, convert(data, tmp_path / "g", **QUIET)):
        with Loader(source, [2], batch_size=4) as loader:
            batch = next(iter(loader))
            assert batch.num_nodes < 30
            assert torch.equal(batch.target, target)
    for name in ("columns", "last"):
        with pytest.raises(
            errors.InvalidArgumentError, match=rf"{name} has shape \[5, 30\], with a column for each node"
        ):
            Loader(Own(**graph(), **{name: torch.rand(5, 30)}), [2])
        with Loader(Own(**graph(), **{name: torch.rand(5, 7)}), [2]) as loader:
            assert next(iter(loader))[name].shape == (5, 7)
    with Loader(Own(**graph(), last=target), [2], batch_size=4) as loader:
        batch = next(iter(loader))
        assert torch.equal(batch.last, target[batch.n_id])
    with Loader(pyg.Data(**graph(), target=target), [2], batch_size=4) as loader:
        batch = next(iter(loader))
        assert torch.equal(batch.target, target[batch.n_id]), "of PyG's own class they are nodes'"


def test_what_may_be_of_nodes_or_edges_is_asked_for(tmp_path: Path) -> None:
    words = r"'cost' has 4 rows, and the graph has 4 nodes and 4 edges: say which.*node_level=\['cost'\] or edge_level="
    for read in (lambda: convert(SQUARE, tmp_path / "g", **QUIET), lambda: Loader(SQUARE, [2])):
        with pytest.raises(errors.InvalidArgumentError, match=words):
            read()
    for level in ("node", "edge"):
        with convert(SQUARE, tmp_path / "g", **{f"{level}_level": ["cost"]}, **QUIET) as store:
            assert levels(store) == {"x": "node", "cost": level}
        with Loader(with_levels(SQUARE, **{f"{level}_level": ["cost"]}), [2], batch_size=2) as loader:
            batch = next(iter(loader))
            assert batch.cost.equal(SQUARE["cost"][batch.n_id if level == "node" else batch.e_id])
    with convert(with_levels(SQUARE, graph_level=["cost"]), tmp_path / "g", **QUIET) as store:
        assert same(store.attributes(), {"cost": SQUARE["cost"]})


def test_weights_belong_to_edges(tmp_path: Path) -> None:
    with convert(SQUARE, tmp_path / "g", weight_attr="cost", **QUIET) as store:
        assert levels(store) == {"x": "node", "cost": "edge"}
        assert store.weight_attr == "cost"
        with Loader(store, [1], weight_attr="cost") as one, Loader(SQUARE, [1], weight_attr="cost") as other:
            for a, b in zip(one, other, strict=True):
                assert a.cost.equal(b.cost)
                assert a.cost.equal(SQUARE["cost"][a.e_id])
    with pytest.raises(errors.InvalidArgumentError, match="weight_attr"):
        Loader(with_levels(SQUARE, node_level=["cost"]), [1], weight_attr="cost")


def test_times_are_asked_for() -> None:
    data = {**SQUARE, "t": torch.arange(4)}
    del data["cost"]
    with pytest.raises(errors.InvalidArgumentError, match=r"edge_level=\['t'\]"):
        Loader(data, [2], time_attr="t", input_time=torch.full((4,), 9))
    with Loader(with_levels(data, edge_level=["t"]), [2], time_attr="t", input_time=torch.full((4,), 9)) as loader:
        assert "t" in next(iter(loader))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"edge_level": "cost"}, TypeError, "edge_level must be a list of names of tensors, got 'cost'"),
        ({"edge_level": [3]}, TypeError, "edge_level must be a list of names"),
        ({"edge_level": torch.tensor(3)}, errors.DTypeError, r"edge_level must be a list of names .*got tensor\(3\)"),
        (
            {"edge_level": ["cost"], "node_level": ["cost"]},
            ValueError,
            "'cost' is both in node_level and in edge_level",
        ),
        (
            {"edge_level": ["cots"], "node_level": ["cost"]},
            ValueError,
            "edge_level names 'cots', which the graph",
        ),
        ({"edge_level": ["cost"], "graph_level": ["names"]}, ValueError, "graph_level names 'names', which the graph"),
    ],
    ids=str,
)
def test_levels_that_cannot_be(options: Any, error: type[Exception], words: str, tmp_path: Path) -> None:
    for read in (
        lambda: convert(SQUARE, tmp_path / "g", **options, **QUIET),
        lambda: Loader(with_levels(SQUARE, **options), [2]),
    ):
        with pytest.raises(error, match=words):
            read()


def test_rows_that_do_not_fit_a_level() -> None:
    data = graph(cost=torch.rand(5))
    for level in ("node", "edge"):
        with pytest.raises(errors.InvalidArgumentError, match=f"expected one row per {level}"):
            Loader(with_levels(data, **{f"{level}_level": ["cost"]}), [2])


def test_lists_with_an_entry_for_each_node_are_refused(tmp_path: Path) -> None:
    data = graph(names=[f"n{i}" for i in range(30)])
    with pytest.raises(errors.InvalidArgumentError, match=r"names is a list with an entry for each node or edge"):
        convert(data, tmp_path / "g", **QUIET)
    with Loader(with_levels(data, graph_level=["names"]), [2]) as loader:
        assert next(iter(loader)).names[29] == "n29"


@pytest.mark.parametrize("name", ["x", "pos", "batch", "train_mask", "edge_weight"])
@pytest.mark.parametrize("value", [torch.tensor(1.5), np.array(2), np.float32(2), 3], ids=repr)
def test_a_single_value_by_a_name_of_rows_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    data = {**graph(), name: value}
    paper, cites = {"num_nodes": 30}, {"edge_index": data["edge_index"]}
    (cites if name == "edge_weight" else paper)[name] = value
    said = rf"{name} is a single value, .* row for each node or edge, or graph_level=\['{name}'\]"
    for given in (data, Data.from_dict(data), {"paper": paper, ("paper", "cites", "paper"): cites}):
        with pytest.raises(errors.InvalidArgumentError, match=said):
            Loader(given, [2])
        with pytest.raises(errors.InvalidArgumentError, match=said):
            convert(given, tmp_path / "g", **QUIET)
    with Loader(with_levels(data, graph_level=[name]), [2]) as loader:
        assert next(iter(loader))[name] == value


def test_columns_for_nodes_or_edges_are_asked_for() -> None:
    data = graph(other_index=torch.zeros(2, 30, dtype=torch.long))
    with pytest.raises(errors.InvalidArgumentError, match=r"with a column for each node or edge.*graph_level="):
        Loader(data, [2])
    assert "other_index" in next(iter(Loader(with_levels(data, graph_level=["other_index"]), [2])))


# Splits in the columns of a mask.


NO_TRAIN = r"no split 'train'.*'train:0', 'train:1'.*each column of 'train_mask' is a split"


def test_columns_of_a_mask_are_splits(tmp_path: Path) -> None:
    g = torch.Generator().manual_seed(5)
    mask = torch.rand(30, 4, generator=g) > 0.5
    one, name = mask[:, :1].clone(), "train"
    np.save(tmp_path / "mask.npy", mask.numpy())
    np.save(tmp_path / "fortran.npy", np.asfortranarray(mask.numpy()))
    np.savez_compressed(
        tmp_path / "z.npz", edge_index=graph()["edge_index"].numpy(), x=graph()["x"].numpy(), train_mask=mask.numpy()
    )
    memory = graph(train_mask=mask, val_mask=one)
    files = [graph(train_mask=tmp_path / "mask.npy"), graph(train_mask=tmp_path / "fortran.npy"), tmp_path / "z.npz"]
    for data in (memory, *files):
        with convert(data, tmp_path / "g", **QUIET) as store:
            assert store["train_mask"].equal(mask)
            for column in range(4):
                assert store.split(f"{name}:{column}").equal(mask[:, column].nonzero().view(-1))
                assert store.splits[f"{name}:{column}"] == int(mask[:, column].sum())
            with pytest.raises(errors.InvalidArgumentError, match=NO_TRAIN):
                Loader(store, [2], "train")
            with Loader(store, [2], "train:3", batch_size=30) as a, Loader(memory, [2], "train:3", batch_size=30) as b:
                first, second = next(iter(a)), next(iter(b))
                assert first.n_id.equal(second.n_id)
                assert first.n_id[: first.batch_size].equal(mask[:, 3].nonzero().view(-1))
                assert first.train_mask.equal(mask[first.n_id])
    with pytest.raises(errors.InvalidArgumentError, match=NO_TRAIN):
        Loader(memory, [2], "train")
    with Loader(memory, [2], "val", batch_size=30) as loader:  # of one column
        batch = next(iter(loader))
        assert batch.n_id[: batch.batch_size].equal(one.view(-1).nonzero().view(-1))


def test_splits_of_heterogeneous_stores(tmp_path: Path) -> None:
    data = typed()
    data["paper"]["train_mask"] = torch.arange(30) % 2 == 0
    data["paper"]["fold_mask"] = torch.eye(30, 3, dtype=torch.bool)
    with convert(data, tmp_path / "g", **QUIET) as store:
        assert store.splits == {"paper": {"fold:0": 1, "fold:1": 1, "fold:2": 1, "train": 15}}
        with Loader(store, [2], ("paper", "fold:2")) as loader:
            assert next(iter(loader))["paper"].n_id[0] == 2
