"""Labelled links, as PyG's RandomLinkSplit leaves them: kept by stores, taken by name, not seen by Loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from freshgo import LinkLoader, Loader, Store, convert, errors, update

pyg = pytest.importorskip("torch_geometric")
RandomLinkSplit = pytest.importorskip("torch_geometric.transforms").RandomLinkSplit

QUIET: dict[str, Any] = {"memory": "64MiB", "progress": False, "overwrite": True}
RATES, RATED = ("user", "rates", "item"), ("item", "rev_rates", "user")
NODES = 40


def homogeneous(**more: Any) -> Any:
    g = torch.Generator().manual_seed(1)
    edges = torch.randint(NODES, (2, 200), generator=g)
    return pyg.data.Data(x=torch.rand(NODES, 4), edge_index=edges, edge_attr=torch.rand(200, 2), **more)


def heterogeneous() -> Any:
    g = torch.Generator().manual_seed(2)
    data = pyg.data.HeteroData()
    data["user"].x, data["item"].num_nodes = torch.rand(NODES, 4), 25
    edges = torch.stack([torch.randint(NODES, (150,), generator=g), torch.randint(25, (150,), generator=g)])
    data[RATES].edge_index, data[RATES].edge_label = edges, torch.randint(5, (150,), generator=g)
    data[RATED].edge_index = edges.flip(0)
    data["user", "knows", "user"].edge_index = torch.randint(NODES, (2, 90), generator=g)
    return data


SPLITS: dict[str, Any] = {
    "plain": lambda: RandomLinkSplit()(homogeneous()),
    "without negatives": lambda: RandomLinkSplit(neg_sampling_ratio=0.0)(homogeneous()),
    "labels apart": lambda: RandomLinkSplit(split_labels=True, neg_sampling_ratio=2.0)(homogeneous()),
    "labels apart without negatives": lambda: RandomLinkSplit(split_labels=True, neg_sampling_ratio=0.0)(homogeneous()),
    "undirected": lambda: RandomLinkSplit(is_undirected=True, disjoint_train_ratio=0.3)(homogeneous()),
    "another key": lambda: RandomLinkSplit(key="score")(homogeneous(score=torch.randint(4, (200,)))),
    "no test links": lambda: RandomLinkSplit(num_test=0)(homogeneous())[:2],
    "heterogeneous": lambda: RandomLinkSplit(edge_types=RATES, rev_edge_types=RATED)(heterogeneous()),
    "heterogeneous, apart": lambda: RandomLinkSplit(edge_types=[RATES], split_labels=True)(heterogeneous()),
    "of two types": lambda: RandomLinkSplit(edge_types=[RATES, ("user", "knows", "user")])(heterogeneous()),
}


def labelled(data: Any, edge_type: Any = None) -> dict[str, torch.Tensor]:
    """The tensors that RandomLinkSplit has added."""
    of = data if edge_type is None else data[edge_type]
    return {name: of[name] for name in of.keys() if "edge_label" in name or name.startswith("score")}  # noqa: SIM118


def batches(data: Any, index: Any, *more: Any, **options: Any) -> list[Any]:
    with LinkLoader(data, [4, 2], index, *more, batch_size=17, shuffle=True, seed=3, **options) as loader:
        return list(loader)


def check_equal(one: list[Any], other: list[Any]) -> None:
    assert len(one) == len(other) > 0
    for a, b in zip(one, other, strict=True):
        assert a.to_dict().keys() == b.to_dict().keys()
        for left, right in zip(a.stores, b.stores, strict=True):
            assert set(left.keys()) == set(right.keys())
            for name, value in left.items():
                assert torch.equal(value, right[name]) if isinstance(value, torch.Tensor) else value == right[name]


@pytest.mark.parametrize("kind", SPLITS)
def test_each_graph_keeps_its_links(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    for data in SPLITS[kind]():
        typed = isinstance(data, pyg.data.HeteroData)
        types = [of for of in data.edge_types if labelled(data, of)] if typed else [None]
        with convert(data, tmp_path / "g", **QUIET) as store:
            assert store.link_splits == ["train"]
            for edge_type in types:
                kept, given = store.links("train", edge_type), labelled(data, edge_type)
                assert kept.keys() == given.keys()
                assert all(torch.equal(kept[name], given[name]) for name in given)
                if sum(tensor.size(-1) for name, tensor in given.items() if name.endswith("_index")) == 0:
                    continue
                key = "score" if kind == "another key" else "edge_label"
                sides = [side for side in ("", "pos_", "neg_") if f"{side}{key}_index" in given]
                index = torch.cat([given[f"{side}{key}_index"] for side in sides], 1)
                label = torch.cat([given[f"{side}{key}"] for side in sides])
                named, by_hand = ("train", index) if edge_type is None else ((edge_type, "train"), (edge_type, index))
                expected = batches(data, by_hand, label)
                check_equal(batches(store, named), expected)
                check_equal(batches(data, named), expected)
                if len(types) == 1:
                    check_equal(batches(store, "train"), expected)
            nodes = "user" if typed else None
            with Loader(store, [3], nodes) as one, Loader(data, [3], nodes) as other:
                check_equal(list(one), list(other))
                assert not any("label" in name for of in next(iter(one)).stores for name in of)


@pytest.mark.parametrize("typed", [False, True])
def test_the_store_of_the_training_graph_takes_the_links_of_the_others(typed: bool, tmp_path: Path) -> None:
    """The three lines of the how-to."""
    train, val, test = SPLITS["heterogeneous" if typed else "plain"]()
    store = convert(train, tmp_path / "train", **QUIET)
    store = update(store, tmp_path / "links", links={"val": val, "test": test}, **QUIET)
    at_once = convert(train, tmp_path / "once", links={"train": train, "val": val, "test": test}, **QUIET)
    of = RATES if typed else None
    for one in (store, at_once):
        one.verify()
        assert one.link_splits == ["train", "val", "test"]
        assert (one[RATES].num_edges if typed else one.num_edges) == (train[RATES] if typed else train).num_edges
        for name, data in (("train", train), ("val", val), ("test", test)):
            assert all(torch.equal(one.links(name, of)[key], value) for key, value in labelled(data, of).items())
            given = labelled(data, of)
            by_hand = (
                given["edge_label_index"] if of is None else (of, given["edge_label_index"]),
                given["edge_label"],
            )
            check_equal(batches(one, name), batches(train, *by_hand))
    replaced = update(store, tmp_path / "fewer", links={"val": test, "test": None}, **QUIET)
    assert replaced.link_splits == ["train", "val"]
    assert replaced.links("val", of).keys() == labelled(test, of).keys()
    assert all(torch.equal(replaced.links("val", of)[key], value) for key, value in labelled(test, of).items())
    assert "left out links/test/" in str(replaced.history[-1])


def test_times_of_links(tmp_path: Path) -> None:
    data = homogeneous(time=torch.arange(200))
    data.edge_label_index, data.edge_label_time = data.edge_index[:, 100:], data.time[100:]
    data.edge_label = torch.ones(100)
    with convert(data, tmp_path / "g", **QUIET) as store:
        assert store.links("train")["edge_label_time"].equal(data.edge_label_time)
        expected = batches(data, data.edge_label_index, data.edge_label, data.edge_label_time, time_attr="time")
        for source in (store, data):
            check_equal(batches(source, "train", time_attr="time"), expected)
            without = batches(data, data.edge_label_index, data.edge_label)
            check_equal(batches(source, "train"), without)
            later = batches(source, "train", None, torch.full((100,), 500), time_attr="time")
            assert bool((later[0].edge_label_time == 500).all())
    del data.edge_label_time
    with pytest.raises(errors.InvalidArgumentError, match="'train' has no times, which time_attr needs"):
        LinkLoader(data, [2], "train", time_attr="time")


@pytest.mark.parametrize("negatives", ["binary", "triplet"])
def test_negatives_for_a_split(negatives: str, tmp_path: Path) -> None:
    train, _, _ = SPLITS["without negatives"]()
    label = train.edge_label if negatives == "binary" else None
    expected = batches(train, train.edge_label_index, label, neg_sampling=negatives)
    with convert(train, tmp_path / "g", **QUIET) as store:
        check_equal(batches(store, "train", neg_sampling=negatives), expected)
    train, _, _ = SPLITS["plain"]()
    if negatives == "binary":  # labels from 0 on are raised, as PyG does
        assert set(batches(train, "train", neg_sampling="binary")[0].edge_label.tolist()) == {0, 1, 2}
        return
    with pytest.raises(errors.InvalidArgumentError, match="has labels other than 1"):
        LinkLoader(train, [2], "train", neg_sampling=negatives)


def test_splits_of_other_sources() -> None:
    """Stores have the arrays of OGB and of GraphBolt under their names."""
    from freshgo._args.labelled import assembled

    pairs, others = torch.tensor([[0, 1], [2, 3], [4, 5]]), torch.tensor([[5, 0]])
    index, label, _ = assembled({"edge": pairs, "edge_neg": others}, "valid")
    assert index.tolist() == [[0, 2, 4, 5], [1, 3, 5, 0]]
    assert label is not None and label.tolist() == [1, 1, 1, 0]
    index, label, _ = assembled({"seeds": pairs, "labels": torch.tensor([1, 0, 1]), "indexes": torch.arange(3)}, "test")
    assert (index.tolist(), label.tolist() if label is not None else None) == (pairs.t().tolist(), [1, 0, 1])
    index, label, _ = assembled({"source_node": pairs[:, 0], "target_node": pairs[:, 1]}, "train")
    assert (index.tolist(), label) == (pairs.t().tolist(), None)
    triples = {"head": pairs[:, 0], "tail": pairs[:, 1], "relation": torch.tensor([7, 8, 7])}
    index, label, _ = assembled(triples, "train")
    assert (index.tolist(), label.tolist() if label is not None else None) == (pairs.t().tolist(), [7, 8, 7])
    for arrays in ({**triples, "head_type": pairs[:, 0]}, {"head": pairs[:, 0]}, {}):
        with pytest.raises(errors.InvalidArgumentError, match="give edge_label_index=links"):
            assembled(arrays, "train")
    citations = {"source_node": pairs[:, 0], "target_node": pairs[:, 1]}
    for arrays, name in ((triples, "head_neg"), (citations, "target_node_neg")):
        words = rf"the split of links 'valid' has {name} \[3, 500\], .* by loader\.sample\(pairs\)"
        with pytest.raises(errors.InvalidArgumentError, match=words):
            assembled({**arrays, name: torch.zeros(3, 500, dtype=torch.long)}, "valid")


def change(name: str, value: Any) -> Any:
    data = homogeneous(edge_label_index=torch.zeros(2, 3, dtype=torch.long), edge_label=torch.ones(3))
    data[name] = value
    return data


@pytest.mark.parametrize(
    ("links", "error", "words"),
    [
        (
            {"val": homogeneous()},
            ValueError,
            r"links\['val'\] has no labelled links: expected a graph of RandomLinkSplit",
        ),
        ({"val": {"edge_label": torch.ones(3)}}, ValueError, "edge_label is not part of labelled links"),
        (
            {"val": {"edge_label_index": torch.tensor([[0, 1], [2, NODES]])}},
            ValueError,
            rf"\[1, 1\] is {NODES}, expected a",
        ),
        ({"val": {"edge_label_index": torch.tensor([[0, -1], [2, 3]])}}, ValueError, r"edge_label_index\[0, 1\] is -1"),
        ({"val": {"edge_label_index": torch.zeros(3, 2)}}, ValueError, r"must be integers \[2, links\]"),
        ({"val": change("edge_label", torch.ones(4))}, ValueError, r"edge_label must have a row for each of 3 links"),
        ({"val": change("x", torch.ones(9, 1))}, ValueError, "is a graph with 9 nodes, expected the 40 nodes"),
        (
            {"val": {RATES: {"edge_label_index": torch.zeros(2, 3, dtype=torch.long)}}},
            ValueError,
            "are of .*expected an e",
        ),
        ({"a/b": homogeneous()}, ValueError, "must be a string without '/'"),
        ({"val": 3}, TypeError, "expected a PyG Data"),
        (["val"], TypeError, "links must be a mapping"),
        (
            {"none": None},
            ValueError,
            "drops a split of links that the store does not have; it has 'train'",
        ),
    ],
    ids=str,
)
def test_bad_links(links: Any, error: type[Exception], words: str, tmp_path: Path) -> None:
    train, _, _ = SPLITS["plain"]()
    with convert(train, tmp_path / "g", **QUIET) as store, pytest.raises(error, match=words):
        update(store, tmp_path / "h", links=links, **QUIET)
    assert not (tmp_path / "h").exists()


def test_names_that_there_are_not(tmp_path: Path) -> None:
    train, val, _ = SPLITS["of two types"]()
    with convert(train, tmp_path / "g", links={"train": train, "val": val}, **QUIET) as store:
        with pytest.raises(errors.InvalidArgumentError, match="no split of links 'test', only 'train', 'val'"):
            LinkLoader(store, [2], "test")
        with pytest.raises(errors.InvalidArgumentError, match="name the edge type, as edge_label_index="):
            LinkLoader(store, [2], "val")
        with pytest.raises(errors.InvalidArgumentError, match="'val' has none of"):
            LinkLoader(store, [2], (RATED, "val"))
    with pytest.raises(errors.InvalidArgumentError, match="labelled links of a graph in memory are 'train'"):
        LinkLoader(val, [2], "val")


def test_a_damaged_split(tmp_path: Path) -> None:
    convert(SPLITS["plain"]()[0], tmp_path / "g", **QUIET).close()
    (file,) = (tmp_path / "g").glob("attached*edge_label_index.bin")
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    with Store(tmp_path / "g") as store, pytest.raises(errors.CorruptError, match="edge_label_index"):
        LinkLoader(store, [2], "train")


def test_from_files(tmp_path: Path) -> None:
    edges = np.random.default_rng(0).integers(0, 9, (2, 30))
    for name, array in {"edge_index": edges, "edge_label_index": edges[:, :7], "edge_label": np.ones(7)}.items():
        np.save(tmp_path / f"{name}.npy", array)
    with convert(tmp_path, tmp_path / "g", **QUIET) as store:
        assert store.links("train")["edge_label_index"].tolist() == edges[:, :7].tolist()
