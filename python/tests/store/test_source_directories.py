"""Directories of MAG240M, IGB and GraphBolt, and ``.npz`` archives, give the store of their arrays."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import layouts
import numpy as np
import pytest
import torch
import yaml
from seeds import seed as seed_of
from store_oracle import check_store

from freshgo import convert, errors

SMALL: dict[str, Any] = {"memory": "64MiB", "progress": False}


def compare(store: Any, want: layouts.Graph) -> None:
    """Compare a store with a graph whose tensors may be in another order."""
    for key, part in want.items():
        stored = store if key in ("", ("", "", "")) else store[key]
        level = "node" if isinstance(key, str) else "edge"
        names = [name for name, info in stored.tensors.items() if info.level == level]
        want[key] = {**{name: part[name] for name in names}, **{k: v for k, v in part.items() if k not in names}}
    check_store(store, want)


def mag240m(root: Path, seed: int) -> layouts.Graph:
    """Write a directory of MAG240M with its pickles; returns its graph without splits."""
    graph = layouts.typed_graph(seed)
    layouts.write_mag240m(root / "mag240m_kddcup2021", graph)
    del graph["paper"]["splits"]
    return graph


def test_mag240m(tmp_path: Path) -> None:
    root = tmp_path / "dataset"
    graph = mag240m(root, seed_of(1))
    with pytest.raises(errors.InvalidArgumentError, match=r"meta\.pt is a pickle.*or allow_pickle=False to go without"):
        convert(root, tmp_path / "g", **SMALL)
    with convert(root, tmp_path / "g", allow_pickle=False, **SMALL) as store:
        assert store["paper"].splits == {}
        ends = [
            graph["author", "writes", "paper"]["edge_index"][0],
            graph["author", "affiliated_with", "institution"]["edge_index"][0],
        ]
        assert store["author"].num_nodes == 1 + max(int(ids.max()) for ids in ends)
    graph["paper"]["splits"] = torch.load(root / "mag240m_kddcup2021" / "split_dict.pt", weights_only=False)
    for place, given in enumerate((root, root / "mag240m_kddcup2021")):
        with convert(given, tmp_path / f"h{place}", allow_pickle=True, source="mag240m", **SMALL) as store:
            compare(store, graph)


@pytest.mark.parametrize("named", [None, "mag240m"])
def test_a_relation_of_mag240m_without_its_edges(tmp_path: Path, named: str | None) -> None:
    """Its directory is there, so that somebody means it to be in the graph."""
    root = tmp_path / "dataset"
    graph = mag240m(root, seed_of(3))
    lacking = ("author", "writes", "paper")
    directory = root / "mag240m_kddcup2021" / "processed" / "___".join(lacking)
    (directory / "edge_index.npy").unlink()
    how = {"allow_pickle": True, "source": named, **SMALL}
    with pytest.raises(errors.StoreNotFoundError, match=r"author___writes___paper has no edge_index\.npy") as error:
        convert(root, tmp_path / "g", **how)
    assert error.value.filename == str(directory / "edge_index.npy")
    assert not (tmp_path / "g").exists()
    shutil.rmtree(directory)
    del graph[lacking]
    graph["paper"]["splits"] = torch.load(root / "mag240m_kddcup2021" / "split_dict.pt", weights_only=False)
    with convert(root, tmp_path / "g", **how) as store:
        compare(store, graph)


@pytest.mark.parametrize("raw", [False, True])
def test_igb(tmp_path: Path, raw: bool) -> None:
    """Also of the form of the large ones, in which rows have no header."""
    rng = np.random.default_rng(seed_of(2))
    graph: layouts.Graph = {
        "paper": {
            "x": rng.standard_normal((50, 1024), dtype=np.float32),
            "y": rng.integers(19, size=50).astype(np.float32),
            "node_label_2K": rng.integers(2983, size=50).astype(np.float32),
        },
        "fos": {"x": rng.standard_normal((9, 1024), dtype=np.float32)},
        ("paper", "cites", "paper"): {"edge_index": rng.integers(50, size=(2, 70))},
        ("paper", "topic", "fos"): {"edge_index": np.stack([rng.integers(50, size=60), rng.integers(9, size=60)])},
    }
    root = layouts.write_npy_types(tmp_path / "tiny", graph, "__", {"x": "node_feat", "y": "node_label_19"}, pairs=True)
    if raw:
        for path in (root / "processed").glob("*/node_*.npy"):
            np.load(path).tofile(path)
    graph["paper"]["splits"] = {"train": np.arange(30), "val": np.arange(30, 40), "test": np.arange(40, 50)}
    with convert(root, tmp_path / "g", **SMALL) as store:
        compare(
            store,
            {
                **dict(sorted((k, v) for k, v in graph.items() if isinstance(k, str))),
                **{k: v for k, v in graph.items() if isinstance(k, tuple)},
            },
        )
    for name in ("fos", "paper__topic__fos"):
        for path in (root / "processed" / name).iterdir():
            path.unlink()
        (root / "processed" / name).rmdir()
    with convert(root, tmp_path / "one", **SMALL) as store:
        compare(store, {"": graph["paper"], ("", "", ""): graph["paper", "cites", "paper"]})


def graphbolt(root: Path, graph: layouts.Graph, tasks: list[dict[str, Any]], form: str) -> Path:
    """Write a directory of GraphBolt; returns it."""
    root.mkdir()
    nodes, edges, features = [], [], []
    for key, part in graph.items():
        name = key if isinstance(key, str) else "-".join(key)
        typed = {"type": key if isinstance(key, str) else ":".join(key)} if len(graph) > 2 else {}
        if isinstance(key, str):
            nodes.append({**typed, "num": part["num_nodes"]})
        else:
            file = f"{name}.{'csv' if form == 'csv' else 'npy'}"
            if form == "csv":
                np.savetxt(root / file, part["edge_index"].T, "%d", ",")
            else:
                np.save(root / file, part["edge_index"])
            edges.append({**typed, "format": form, "path": file})
        for tensor, rows in part.items():
            if isinstance(rows, np.ndarray) and tensor not in ("edge_index", "y"):
                np.save(root / f"{name}-{tensor}.npy", rows)
                said = {"name": "feat" if tensor == "x" else tensor, "format": "numpy", "path": f"{name}-{tensor}.npy"}
                features.append({"domain": "node" if isinstance(key, str) else "edge", **typed, **said})
    said = {"dataset_name": "test", "graph": {"nodes": nodes, "edges": edges}, "feature_data": features, "tasks": tasks}
    (root / "metadata.yaml").write_text(yaml.safe_dump(said))
    return root


def sets(root: Path, splits: dict[str, dict[str, Any]], of: str | None = None) -> dict[str, Any]:
    """Write the arrays of the sets of a task; returns what metadata say of them."""
    entries = {}
    for name, arrays in splits.items():
        data = []
        for array, rows in arrays.items():
            file = root.parent / f"{root.name}.{name}.{array}.npy"
            np.save(file, rows)
            data.append({"name": array, "format": "numpy", "in_memory": False, "path": f"{name}.{array}.npy"})
        entries[f"{name}_set"] = [{**({"type": of} if of else {}), "data": data}]
    return {"name": "task", **entries}


def moved(root: Path) -> None:
    """Put the arrays of sets into the directory."""
    for path in root.parent.glob(f"{root.name}.*.npy"):
        path.rename(root / path.name.removeprefix(f"{root.name}."))


@pytest.mark.parametrize("form", ["csv", "numpy"])
def test_graphbolt(tmp_path: Path, form: str) -> None:
    graph, root = layouts.ogb_graph(seed_of(3)), tmp_path / "bolt"
    nodes = graph[""]
    names = dict(zip(("train", "validation", "test"), nodes["splits"].values(), strict=True))
    labels = nodes["y"][:, 0].astype(np.int64)
    labels[nodes["splits"]["test"][:40]] = -1
    names["test"] = nodes["splits"]["test"][40:]
    task = sets(root, {name: {"seeds": ids, "labels": labels[ids]} for name, ids in names.items()})
    graphbolt(root, graph, [task], form)
    moved(root)
    with convert(root, tmp_path / "g", **SMALL) as store:
        compare(store, {**graph, "": {**nodes, "y": labels, "splits": names}})


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (([1, 1], [0, 1]), ([2], [0]), "node 1 has two labels"),
        (([1, 2], [0, 1]), ([2], [0]), "node 2 has two labels"),
        (([1, 2], [0, 1]), ([2], [1.5]), "node 2 has two labels"),
        (([1, 2], [[0], [1]]), ([3], [[0, 1]]), r"shape \[1\] in one set and \[2\] in another"),
        (([1, 2], [0, 1]), ([3], [[1]]), r"shape \[\] in one set and \[1\] in another"),
        (([1, 2], [0]), ([3], [1]), "1 labels for 2 seeds"),
        (([1, 2], [0, 1]), ([3], [1.5]), None),
        (([1, 1], [0, 0]), ([1, 2], [0.0, float("nan")]), None),
    ],
)
def test_graphbolt_labels_that_differ(tmp_path: Path, train: Any, test: Any, message: str | None) -> None:
    """A node has one label, and keeps it: integers of one set do not round the floats of another."""
    root = tmp_path / "bolt"
    given = {"train": train, "test": test}
    named = {name: {"seeds": np.array(ids), "labels": np.array(rows)} for name, (ids, rows) in given.items()}
    graphbolt(root, layouts.ogb_graph(seed_of(3)), [sets(root, named)], "numpy")
    moved(root)
    if message is not None:
        with pytest.raises(errors.FormatError, match=message):
            convert(root, tmp_path / "g", **SMALL)
        return
    with convert(root, tmp_path / "g", **SMALL) as store:
        for ids, rows in given.values():
            assert store["y"][ids].equal(torch.tensor(rows, dtype=torch.float64)) or np.isnan(rows[-1])


def test_graphbolt_types_and_links(tmp_path: Path) -> None:
    graph, root = layouts.typed_graph(seed_of(4)), tmp_path / "bolt"
    splits = graph["paper"].pop("splits")
    graph["paper"].pop("y")
    pairs = {
        name: {"seeds": np.stack([ids, ids[::-1]], 1)}
        for name, ids in (("train", splits["train"]), ("test", splits["test"]))
    }
    task = sets(root, pairs, "paper:cites:paper")
    graphbolt(root, graph, [task], "csv")
    moved(root)
    with convert(root, tmp_path / "g", **SMALL) as store:
        compare(store, graph)
        assert store.link_splits == ["train", "test"]
        assert np.array_equal(store.links("train")["paper:cites:paper/seeds"], pairs["train"]["seeds"])


def test_what_graphbolt_cannot_be(tmp_path: Path) -> None:
    root = graphbolt(tmp_path / "bolt", layouts.ogb_graph(seed_of(5)), [], "csv")
    path = root / "metadata.yaml"
    good = yaml.safe_load(path.read_text())
    torch.save(torch.ones(300, 2), root / "x.pt")
    bad: tuple[tuple[dict[str, Any], type[Exception], str], ...] = (
        ({"graph": []}, errors.FormatError, "graph must be a mapping, got list"),
        (
            {"feature_data": [{"domain": "node", "name": "x", "format": "torch", "path": "x.pt"}]},
            ValueError,
            "is a pickle",
        ),
        (
            {"feature_data": [{"domain": "node", "name": "x", "format": "numpy", "path": "no.npy"}]},
            OSError,
            "no such file",
        ),
        (
            {"feature_data": [{"domain": "node", "name": "x", "format": "numpy", "path": "../x.npy"}]},
            ValueError,
            "out of the",
        ),
        ({"feature_data": [{"domain": "tree", "name": "x", "format": "torch", "path": "x.pt"}]}, ValueError, "pickle"),
        (
            {"tasks": [{"train_set": [{"data": [{"name": "labels", "format": "numpy", "path": "-x.npy"}]}]}]},
            ValueError,
            "no seeds",
        ),
        (
            {"graph": {**good["graph"], "nodes": [{"nim": 3}]}},
            errors.FormatError,
            r"an entry of graph\.nodes must have 'num', int, got \{'nim': 3\}",
        ),
        ({"graph": {**good["graph"], "nodes": [{"num": 300}] * 2}}, errors.FormatError, "two entries for ''"),
        (
            {"graph": {**good["graph"], "edges": good["graph"]["edges"] * 2}},
            errors.FormatError,
            r"two entries for \('', '', ''\)",
        ),
        (
            {"feature_data": [{**good["feature_data"][0], "name": name} for name in ("feat", "x")]},
            errors.FormatError,
            "two entries for 'x', expected one",
        ),
        (
            {"feature_data": [{"domain": "node", "format": "numpy", "path": "-x.npy"}]},
            errors.FormatError,
            "an entry of feature_data must have 'name', str",
        ),
    )
    for changed, kind, message in bad:
        path.write_text(yaml.safe_dump({**good, **changed}))
        with pytest.raises(kind, match=message) as raised:
            convert(root, tmp_path / "g", **SMALL)
        assert isinstance(raised.value, errors.FreshgoError)
    (root / "x.pt").write_bytes((root / "x.pt").read_bytes()[:400])
    path.write_text(yaml.safe_dump({**good, **bad[1][0]}))
    with pytest.raises(errors.FormatError, match=r"x\.pt: not a whole file of torch\.save"):
        convert(root, tmp_path / "g", allow_pickle=True, **SMALL)
    path.write_text("graph: [")
    with pytest.raises(errors.FormatError, match="not valid YAML"):
        convert(root, tmp_path / "g", **SMALL)
    (root / "--edges.csv").write_text("1,2\n3\n")
    good["graph"]["edges"][0]["path"] = "--edges.csv"
    path.write_text(yaml.safe_dump(good))
    with pytest.raises(errors.FormatError, match=r"--edges\.csv: .*changed from 2 to 1 at row 1"):
        convert(root, tmp_path / "g", **SMALL)
    assert [entry.name for entry in tmp_path.iterdir()] == ["bolt"]


def test_what_dgl_made_of_a_graphbolt_directory(tmp_path: Path) -> None:
    root = graphbolt(tmp_path / "bolt", layouts.ogb_graph(seed_of(5)), [], "csv")
    made = root / "preprocessed"
    made.mkdir()
    topology = {"type": "FusedCSCSamplingGraph", "path": "preprocessed/fused_csc_sampling_graph.pt"}
    (made / "metadata.yaml").write_text(yaml.safe_dump({"dataset_name": "test", "graph_topology": topology}))
    with pytest.raises(errors.InvalidArgumentError, match=rf"preprocessed.* expected .*: {root}$"):
        convert(made, tmp_path / "g", **SMALL)
    convert(root, tmp_path / "g", **SMALL).close()


def test_an_archive(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    graph = layouts.ogb_graph(seed_of(6))
    arrays = {"edge_index": graph["", "", ""]["edge_index"].T, "x": np.asfortranarray(graph[""]["x"]), "num_nodes": 300}
    np.savez_compressed(tmp_path / "g.npz", train_idx=graph[""]["splits"]["train"], **arrays)
    want = {"num_nodes": 300, "x": graph[""]["x"], "splits": {"train": graph[""]["splits"]["train"]}}
    stages = []
    with caplog.at_level(logging.INFO, "freshgo"):
        with convert(
            tmp_path / "g.npz", tmp_path / "g", memory="64MiB", progress=lambda stage, *_: stages.append(stage)
        ) as store:
            compare(store, {"": want, ("", "", ""): {"edge_index": graph["", "", ""]["edge_index"]}})
    assert caplog.messages == [f"{tmp_path / 'g.npz'}: read as an archive of arrays"]
    assert caplog.messages[0] in stages


@pytest.mark.parametrize("count", [300.5, "many", True])
def test_an_archive_with_another_number_of_nodes(tmp_path: Path, count: Any) -> None:
    np.savez(tmp_path / "g.npz", edge_index=np.array([[0, 1], [1, 2]]), num_nodes=count)
    with pytest.raises(errors.DTypeError, match=r"num_nodes must be an int, got .*(300\.5|many|True)"):
        convert(tmp_path / "g.npz", tmp_path / "g", **SMALL)
