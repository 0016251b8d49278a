"""Every bad input raises a typed error that says what, where and what was expected, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flat_options import grouped

from freshgo import Disk, FreshgoError, LinkLoader, Loader, Store, convert, errors, infer, propagate, update

EDGES = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])
X = np.zeros((4, 2), np.float32)


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        ({"edge_index": EDGES + 1, "x": X}, errors.InvalidArgumentError, r"4"),
        ({"edge_index": EDGES - 1, "x": X}, errors.InvalidArgumentError, r"-1"),
        ({"edge_index": EDGES.T[:, :1], "x": X}, errors.InvalidArgumentError, r"\[num_edges, 2\], got \[4, 1\]"),
        ({"edge_index": EDGES[0], "x": X}, errors.InvalidArgumentError, r"\[num_edges, 2\], got \[4\]"),
        ({"edge_index": EDGES.astype(float), "x": X}, errors.DTypeError, r"float64"),
        ({"edge_index": EDGES.tolist(), "x": X}, errors.DTypeError, r"edge_index.*list"),
        ({"edge_index": [[0, 1], [1]], "x": X}, errors.DTypeError, r"edge_index.*list"),
        ({"x": X}, errors.InvalidArgumentError, r"no 'edge_index' \(keys: 'x'\)"),
        ({"edge_index": EDGES, "x": X[:3]}, errors.InvalidArgumentError, r"3"),
        (
            {"edge_index": EDGES, "x": X, "pos": X[:3]},
            errors.InvalidArgumentError,
            r"'pos' has shape \[3, 2\].*4 nodes",
        ),
        ({"edge_index": EDGES, "x": X.astype(complex)}, errors.DTypeError, r"complex128"),
        ({"edge_index": EDGES, "x": X.astype(">f4")}, errors.DTypeError, r"big-endian.*: x\.astype|array\.astype"),
        ({"edge_index": EDGES, "x": np.array([None] * 4)}, errors.DTypeError, r"object"),
        ({"edge_index": EDGES, "x": "rows.pt"}, errors.DTypeError, r"x must be .*path of a \.npy file, got 'rows.pt'"),
        ({"edge_index": EDGES, "x": X, "train_mask": Path("t.npz")}, errors.DTypeError, r"train_mask must be .*t\.npz"),
        ({"edge_index": EDGES, "x": X, "num_nodes": -1}, errors.InvalidArgumentError, r"num_nodes.*-1"),
        ({"edge_index": EDGES, "x": X, "num_nodes": "4"}, errors.DTypeError, r"num_nodes.*'4'"),
        ({"edge_index": EDGES, "x": X, "n_id": X}, errors.InvalidArgumentError, r"'n_id' is reserved"),
        ({"edge_index": EDGES, "x": X, "splits": {"a": [4]}}, errors.InvalidArgumentError, r"4"),
        ({"edge_index": EDGES, "x": X, "splits": {"a": [[1]]}}, errors.InvalidArgumentError, r"splits\['a'\]"),
        ({"edge_index": EDGES, "x": X, "splits": {"a": [0.5]}}, errors.DTypeError, r"splits\['a'\].*float64"),
        ({"edge_index": EDGES, "x": X, "splits": [1]}, errors.DTypeError, r"splits"),
        (
            {"edge_index": EDGES, "train_mask": np.ones(4, bool), "splits": {"train": [1]}},
            errors.InvalidArgumentError,
            r"'train' is given twice",
        ),
        ({"edge_index": EDGES[:, :0], "x": X[:0]}, errors.InvalidArgumentError, r"node"),
        ({"edge_index": EDGES, 7: X}, errors.DTypeError, r"strings.*7"),
        (17, errors.DTypeError, r"PyG Data.*int"),
        ({"edge_index": torch.from_numpy(EDGES).to_sparse(), "x": X}, errors.DTypeError, r"edge_index.*sparse"),
    ],
)
def test_graphs(tmp_path: Path, data: Any, error: type[FreshgoError], match: str) -> None:
    with pytest.raises(error, match=match):
        convert(data, tmp_path / "g.freshgo", memory="64MiB", progress=False)
    assert list(tmp_path.iterdir()) == []
    if not (isinstance(data, dict) and "splits" in data):
        with pytest.raises(error, match=match):
            Loader(data, [2])


def test_heterogeneous(tmp_path: Path) -> None:
    class HeteroData:
        node_types = ("a", "b")
        edge_types = ()

    with pytest.raises(errors.DTypeError, match="expected a PyG HeteroData or a mapping"):
        convert(HeteroData(), tmp_path / "g")
    with pytest.raises(errors.DTypeError, match="expected a PyG HeteroData or a mapping"):
        Loader(HeteroData(), [2])


@pytest.mark.parametrize("splits", [None, {"train": [0, 1]}, {"train": [0, 2]}])
def test_labels_that_are_nan_are_data(tmp_path: Path, splits: Any) -> None:
    data = {"edge_index": EDGES, "y": np.array([0.0, 1.0, np.nan, 1.0], np.float32), "splits": splits}
    with convert(data, tmp_path / "g", memory="64MiB", progress=False) as store:
        assert store["y"].isnan().tolist() == [False, False, True, False]
        for source in (store, data):
            with Loader(source, [2], [2]) as loader:
                assert next(iter(loader)).y[0].isnan()


@pytest.mark.parametrize("name", ["n_id", "input_id", "ptr", "source_ptr", "source_target", "source_edge"])
def test_names_that_a_batch_uses(name: str) -> None:
    edges = {"edge_index": torch.tensor([[0, 1, 2], [1, 2, 0]]), name: torch.arange(3.0)}
    for data, nodes in ((edges, None), ({"node": {"num_nodes": 3}, ("node", "to", "node"): edges}, "node")):
        with pytest.raises(errors.InvalidArgumentError, match=rf"{name}' is reserved for an attribute of the batch"):
            Loader(data, [2], nodes)


@pytest.mark.parametrize("name", ["", "_mapping", "_x"])
def test_names_that_no_batch_of_pyg_can_have(tmp_path: Path, name: str) -> None:
    private = r"'(a\.)?_?\w*'( of out)? (is empty|begins with an underscore, .*): rename"
    for data in ({"edge_index": EDGES, "num_nodes": 4, name: X}, {"a": {name: X}, ("a", "to", "a"): EDGES}):
        with pytest.raises(errors.InvalidArgumentError, match=private):
            convert(data, tmp_path / "g", progress=False)
    store = convert({"edge_index": EDGES, "x": X}, tmp_path / "g", progress=False)
    with pytest.raises(errors.InvalidArgumentError, match=private):
        update(store, tmp_path / "h", tensors={name: X}, progress=False)
    with pytest.raises(errors.InvalidArgumentError, match=private):
        propagate(store, name=name, progress=False)
    with pytest.raises(errors.InvalidArgumentError, match=private):
        infer(None, store, (store, name), layers=[lambda h, batch: h], progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


def test_names_that_are_no_strings() -> None:
    for data in ({"edge_index": EDGES, 5: X}, {"a": {5: X}, ("a", "to", "a"): EDGES}):
        with pytest.raises(errors.DTypeError, match=r"names of tensors must be strings, got 5 in (the graph|a)"):
            Loader(data, [2])


def test_masked_elements(tmp_path: Path) -> None:
    for masked in (np.ma.masked_array(X, mask=False), np.ma.masked_array(X, mask=[[False, True]] * 4)):
        data = {"edge_index": EDGES, "x": masked}
        for take in (lambda data: Loader(data, [2]), lambda data: convert(data, tmp_path / "g", progress=False)):
            if np.ma.is_masked(masked):
                with pytest.raises(errors.DTypeError, match=r"x has masked elements.*x\.filled\(0\)"):
                    take(data)
            else:
                take(data).close()


@pytest.mark.parametrize("as_numpy", [False, True])
def test_numbers_of_nodes_that_are_their_own(as_numpy: bool) -> None:
    """Programs for PyG add n_id to the graph, which every batch of freshgo has anyway."""
    count = np.arange if as_numpy else torch.arange
    edges = {"edge_index": torch.tensor([[0, 1, 2], [1, 2, 0]]), "e_id": count(3)}
    for data in (
        {**edges, "num_nodes": 3, "n_id": count(3)},
        {"a": {"num_nodes": 3, "n_id": count(3)}, ("a", "to", "a"): edges},
    ):
        with Loader(data, [2], None if "n_id" in data else ("a", [2])) as loader:
            batch = list(loader)[-1]
        nodes, edge = (batch, batch) if "n_id" in data else (batch["a"], batch["a", "to", "a"])
        assert nodes.n_id[0] == 2 and edge.e_id.tolist() == [1]
    for numbers in (count(3) + 1, count(3)[:, None], torch.tensor([True, False, True])):
        with pytest.raises(errors.InvalidArgumentError, match="'n_id' is reserved for an attribute of the batch"):
            Loader({**edges, "num_nodes": 3, "n_id": numbers}, [2])


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"num_neighbors": [-2]}, errors.InvalidArgumentError, r"num_neighbors\[0\] must be at least 0, or -1.*-2"),
        ({"num_neighbors": 5}, errors.DTypeError, r"list of ints.*got 5"),
        ({"num_neighbors": "5"}, errors.DTypeError, r"list of ints"),
        ({"num_neighbors": np.array(5)}, errors.DTypeError, r"num_neighbors must be a list of ints .*got array\(5\)"),
        ({"num_neighbors": torch.tensor(5)}, errors.DTypeError, r"num_neighbors must be a list of ints .*tensor\(5\)"),
        ({"num_neighbors": torch.ones(1, device="meta")}, errors.DTypeError, r"num_neighbors must be a list of ints"),
        ({"weight_attr": "\udcff"}, errors.InvalidArgumentError, r"name of a tensor must be text .*'\\udcff'"),
        ({"time_attr": "time\0"}, errors.InvalidArgumentError, r"without zero characters, got 'time\\x00'"),
        ({"num_neighbors": [2.5]}, errors.DTypeError, r"num_neighbors\[0\].*2.5"),
        ({"num_neighbors": {("a", "b", "c"): [2]}}, errors.DTypeError, r"a list of ints in a homogeneous graph"),
        ({"num_neighbors": [2, 2**64 + 3]}, errors.InvalidArgumentError, r"num_neighbors\[1\] must be at most"),
        ({"input_nodes": []}, errors.InvalidArgumentError, r"empty"),
        ({"input_nodes": np.zeros(3000, bool)}, errors.InvalidArgumentError, r"empty"),
        ({"input_nodes": [0, 3000]}, errors.InvalidArgumentError, r"input_nodes\[1\] is 3000.*\[0, 3000\)"),
        ({"input_nodes": [-1]}, errors.InvalidArgumentError, r"input_nodes\[0\] is -1"),
        ({"input_nodes": np.ones(5, bool)}, errors.InvalidArgumentError, r"3000 entries, got 5"),
        ({"input_nodes": [[1]]}, errors.InvalidArgumentError, r"one-dimensional"),
        ({"input_nodes": [0.5]}, errors.DTypeError, r"float64"),
        ({"input_nodes": "valid"}, errors.InvalidArgumentError, r"'valid', only 'test', 'train'"),
        ({"input_nodes": ("paper", [1])}, errors.DTypeError, r"in a homogeneous graph, got a pair"),
        ({"batch_size": 0}, errors.InvalidArgumentError, r"batch_size must be at least 1, got 0"),
        ({"batch_size": 1.5}, errors.DTypeError, r"batch_size"),
        ({"prefetch": -1}, errors.InvalidArgumentError, r"prefetch"),
        ({"num_workers": -1}, errors.InvalidArgumentError, r"num_workers"),
        ({"shuffle": 1}, errors.DTypeError, r"shuffle"),
        ({"memory": "lots"}, errors.InvalidArgumentError, r"memory.*'200MiB'"),
        ({"memory": -1}, errors.InvalidArgumentError, r"memory"),
        ({"memory": 0}, errors.InvalidArgumentError, r"memory"),
        ({"memory": 1.5}, errors.DTypeError, r"memory"),
        ({"memory": np.zeros(2)}, errors.DTypeError, r"memory must be a number of bytes .*got array"),
        ({"cache": "beladi"}, errors.InvalidArgumentError, r"'auto', .*'match', got 'beladi'; did you mean 'belady'"),
        ({"cache": "vector"}, errors.InvalidArgumentError, r"'auto', .*got 'vector'"),
        ({"cache": 3}, errors.DTypeError, r"cache must be a name \('auto', .*, or a vector of scores, got int"),
        ({"cache": np.zeros(5)}, errors.InvalidArgumentError, r"each of the 3000 nodes, got 5"),
        ({"cache": torch.full((3000,), np.nan)}, errors.InvalidArgumentError, r"hotness of node 0 is nan"),
        ({"transfer": "scann"}, errors.InvalidArgumentError, r"'page-once', .*got 'scann'; did you mean 'scan'"),
        ({"transfer": None}, errors.InvalidArgumentError, r"transfer must be one of 'auto', .*got None"),
        ({"reorder": 1}, errors.InvalidArgumentError, r"reorder must be at least 2, got 1"),
        ({"reorder": "yes"}, errors.DTypeError, r"reorder must be an int, got 'yes'"),
        ({"trace_memory": -1}, errors.InvalidArgumentError, r"trace_memory"),
        ({"buffer_memory": "much"}, errors.InvalidArgumentError, r"buffer_memory.*'200MiB'"),
        ({"memory": 2**70}, errors.InvalidArgumentError, r"memory must be at most"),
        ({"batch_size": 2**70}, errors.InvalidArgumentError, r"batch_size must be at most"),
        ({"scratch": "/no/such/directory"}, errors.InvalidArgumentError, r"scratch must be a directory that exists"),
        ({"scratch": 3}, errors.DTypeError, r"scratch must be a directory, got 3"),
        ({"scratch_size": -1}, errors.InvalidArgumentError, r"scratch_size"),
        ({"io": "mmap"}, errors.InvalidArgumentError, r"'io_uring'.*got 'mmap'"),
        ({"transform": 3}, errors.DTypeError, r"transform"),
        ({"subgraph_type": "inducd"}, errors.InvalidArgumentError, r"subgraph_type.*did you mean 'induced'"),
        ({"subgraph_type": None}, errors.InvalidArgumentError, r"subgraph_type must be one of .*got None"),
    ],
)
def test_options(store: Any, options: dict[str, Any], error: type[FreshgoError], match: str) -> None:
    with pytest.raises(error, match=match):
        Loader(store, **grouped(**{"num_neighbors": [2], **options}))
    with Loader(store, [2], [0]) as loader:  # the process, and the store, are as good as before
        assert len(list(loader)) == 1


def test_a_budget_that_is_too_small_names_one_that_works(store: Any, graph: dict[str, Any]) -> None:
    options: dict[str, Any] = {"num_neighbors": [5, 5], "batch_size": 100, "num_workers": 1}
    with pytest.raises(errors.BudgetError, match="memory") as caught:
        Loader(store, **options, memory="10kB")
    assert isinstance(caught.value, MemoryError)
    assert caught.value.minimum > 10_000
    with Loader(store, **options, memory=caught.value.minimum) as loader:
        for _ in range(3):
            assert len(list(loader)) == len(loader)
        assert loader.stats()["memory_peak"] <= caught.value.minimum


def test_a_conversion_budget_that_is_too_small(tmp_path: Path, graph: dict[str, Any]) -> None:
    with pytest.raises(errors.BudgetError) as caught:
        convert(graph, tmp_path / "g", memory="1kB", progress=False)
    assert list(tmp_path.iterdir()) == []
    convert(graph, tmp_path / "g", memory=caught.value.minimum, progress=False).close()


def test_a_path_that_exists(tmp_path: Path, graph: dict[str, Any]) -> None:
    convert(graph, tmp_path / "g", progress=False).close()
    (tmp_path / "file").write_text("mine")
    for name in ("g", "file"):
        with pytest.raises(errors.StoreExistsError, match=f"{name} already exists; pass overwrite=True") as caught:
            convert(graph, tmp_path / name, progress=False)
        assert isinstance(caught.value, FileExistsError)
    with convert({"edge_index": EDGES, "x": X}, tmp_path / "g", overwrite=True, progress=False) as store:
        assert store.num_nodes == 4
    with pytest.raises(FreshgoError):
        convert(graph, tmp_path / "file", overwrite=True, progress=False)
    assert (tmp_path / "file").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "g"]


def test_no_store(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileNotFoundError, match="nothing"):
        Store.open(tmp_path / "nothing")
    for name in ("empty", "file"):
        with pytest.raises(errors.FreshgoError, match=name) as caught:
            Store.open(tmp_path / name)
        assert isinstance(caught.value, errors.FormatError | errors.StoreNotFoundError)


@pytest.fixture
def damaged(store_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(store_path, tmp_path / "copy.freshgo"))


def largest(store: Path) -> Path:
    return max((path for path in store.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def test_truncated_file(damaged: Path) -> None:
    victim = largest(damaged)
    os.truncate(victim, victim.stat().st_size - 4096)
    with pytest.raises(errors.CorruptError, match=victim.name) as caught:
        Store.open(damaged)
    assert isinstance(caught.value, OSError)


def test_file_truncated_under_a_loader(damaged: Path) -> None:
    with Loader(damaged, [5], batch_size=100, cache="none", feature_cache=0) as loader:
        iterator = iter(loader)
        next(iterator)
        os.truncate(largest(damaged), 0)
        with pytest.raises(OSError, match=largest(damaged).parent.name):
            list(loader)


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def test_flipped_byte_is_found_by_verify_and_by_checksums(damaged: Path) -> None:
    with Store.open(damaged) as store:
        store.verify()
    victim = largest(damaged)
    flip(victim, 8192 + 17)
    with Store.open(damaged) as store, pytest.raises(errors.CorruptError, match=rf"{victim.name}.*8192"):
        store.verify()
    options: dict[str, Any] = {"num_neighbors": [-1], "batch_size": 500, "cache": "none", "feature_cache": 0}
    with Loader(damaged, **options) as loader:
        list(loader)
    with (
        pytest.raises(errors.CorruptError, match=victim.name),
        Loader(damaged, **options, disk=Disk(checksums=True)) as loader,
    ):
        list(loader)


def test_any_flipped_byte_of_any_file_is_found(damaged: Path) -> None:
    for path in sorted(damaged.rglob("*")):
        if path.is_file() and path.stat().st_size:
            for offset in (0, path.stat().st_size // 2, path.stat().st_size - 1):
                flip(path, offset)
                with pytest.raises(FreshgoError), Store.open(damaged) as store:
                    store.verify()
                flip(path, offset)
    with Store.open(damaged) as store:
        store.verify()


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_missing_permission(damaged: Path, tmp_path: Path, graph: dict[str, Any]) -> None:
    damaged.chmod(0)
    with pytest.raises(PermissionError):
        Store.open(damaged)
    damaged.chmod(0o700)
    tmp_path.chmod(0o500)
    with pytest.raises(errors.StorePermissionError):
        convert(graph, tmp_path / "new", progress=False)
    tmp_path.chmod(0o700)


def test_closed_store(store_path: Path) -> None:
    store = Store.open(store_path)
    store.close()
    store.close()
    assert "closed" in repr(store)
    for action in (lambda: store["x"], lambda: store.split("train"), store.verify, lambda: Loader(store, [2])):
        with pytest.raises(errors.ClosedError):
            action()


@pytest.mark.parametrize("name", ["nonsense", "train"])
def test_no_such_tensor(store: Any, name: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=f"{name}.*'x'"):
        store[name]


def test_no_such_split(store: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"'x'.*'train'"):
        store.split("x")


def test_pickled_array_is_never_loaded(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "exploded",))

    np.save(tmp_path / "x.npy", np.array([Bomb()] * 4), allow_pickle=True)
    with pytest.raises(errors.DTypeError, match="pickled"):
        convert({"edge_index": EDGES, "x": tmp_path / "x.npy"}, tmp_path / "g", progress=False)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", errors.FormatError),
        (b"PK\x03\x04 a zip file", errors.FormatError),
        (b"\x93NUMPY\x01\x00\xff\xff{", errors.FormatError),
        (b"\x93NUMPY\x07\x00\x10\x00" + b" " * 16, errors.FormatError),
    ],
)
def test_foreign_npy(tmp_path: Path, content: bytes, error: type[FreshgoError]) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(error, match=r"x\.npy"):
        convert({"edge_index": EDGES, "x": tmp_path / "x.npy"}, tmp_path / "g", progress=False)


def test_truncated_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    os.truncate(tmp_path / "x.npy", 140)
    with pytest.raises(errors.FormatError, match=r"x\.npy: truncated: the header promises 32 bytes"):
        convert({"edge_index": EDGES, "x": tmp_path / "x.npy"}, tmp_path / "g", progress=False)


@pytest.mark.parametrize("kind", ["pipe", "directory", "device"])
def test_no_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.npy"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(errors.FormatError, match=r"x\.npy: a directory, a pipe or a device, expected"):
        convert({"edge_index": EDGES, "x": path}, tmp_path / "g", progress=False)


def test_missing_npy(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        convert({"edge_index": str(tmp_path / "nothing.npy")}, tmp_path / "g", progress=False)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        convert(tmp_path / "nowhere", tmp_path / "g", progress=False)


def test_a_loader_takes_no_files(tmp_path: Path) -> None:
    np.save(tmp_path / "e.npy", EDGES)
    with pytest.raises(errors.DTypeError, match=r"convert\(\)"):
        Loader({"edge_index": tmp_path / "e.npy"}, [2])


def test_what_no_store_can_keep_is_ignored_with_a_warning(tmp_path: Path) -> None:
    data = {"edge_index": EDGES, "x": X, "name": object(), "scale": [torch.nn.Identity()], "nothing": None}
    named = r"name \(object\), scale \(list\)"
    with pytest.warns(UserWarning, match=named), convert(data, tmp_path / "g", progress=False) as store:
        assert list(store.tensors) == ["x"]
    with pytest.warns(UserWarning, match=named), Loader(data, [2]) as loader:
        assert "name" not in next(iter(loader))


def test_what_looks_like_a_mask_and_is_none_is_refused(tmp_path: Path) -> None:
    """PyG's older data has masks of uint8, which PyTorch takes for masks with a warning."""
    mask = torch.tensor([0, 1, 1, 0, 1], dtype=torch.uint8)
    data = {"edge_index": torch.tensor([[0, 1, 2], [1, 2, 3]]), "x": torch.zeros(5, 2), "val_mask": mask}
    store = convert(data, tmp_path / "g.freshgo", progress=False)
    for source in (data, store):
        with pytest.raises(errors.InvalidArgumentError, match=r"5 zeros and ones.*mask\.bool\(\)"):
            Loader(source, [1], mask)
        with pytest.raises(errors.InvalidArgumentError, match=r"no split 'val'.*'val_mask'"):
            Loader(source, [1], "val")
        with Loader(source, [1], mask.bool()) as loader:
            assert [int(batch.n_id[0]) for batch in loader] == [1, 2, 4]
        with Loader(source, [1], torch.tensor([1, 0, 1], dtype=torch.uint8)) as loader:  # ids
            assert [int(batch.n_id[0]) for batch in loader] == [1, 0, 1]


def test_ids_of_64_bits_without_sign_are_shown_as_they_are() -> None:
    data = {"edge_index": torch.tensor([[0, 1, 2], [1, 2, 3]]), "x": torch.zeros(5, 2)}
    with pytest.raises(errors.InvalidArgumentError, match=r"within \[0, 5\), got 18446744073709551615"):
        Loader(data, [1], torch.tensor([2**64 - 1], dtype=torch.uint64))


ODD: dict[str, tuple[dict[str, Any], bool]] = {
    "no edges, float64": ({"edge_index": np.zeros((2, 0)), "num_nodes": 3}, True),
    "no edges, float32 tensor": ({"edge_index": torch.empty(2, 0), "num_nodes": 3}, True),
    "no edges, transposed": ({"edge_index": np.zeros((0, 2)), "num_nodes": 3}, True),
    "no nodes": ({"edge_index": np.zeros((2, 0), dtype=np.int64)}, False),
    "float edges": ({"edge_index": np.zeros((2, 2))}, False),
    "bool edges": ({"edge_index": np.zeros((2, 2), dtype=bool)}, False),
    "uint64 edges": ({"edge_index": np.ones((2, 2), dtype=np.uint64)}, True),
    "negative id": ({"edge_index": np.array([[0, -1], [0, 0]])}, False),
    "id beyond the nodes": ({"edge_index": np.array([[0, 3], [0, 0]]), "num_nodes": 3}, False),
    "one dimension": ({"x": np.zeros(3, dtype=np.float32)}, True),
    "four dimensions": ({"x": np.zeros((3, 2, 1, 2), dtype=np.float32)}, True),
    "too many rows": ({"x": np.zeros((5, 2), dtype=np.float32)}, False),
    "not contiguous": ({"x": np.zeros((2, 3), dtype=np.float32).T}, True),
    "NaN rows": ({"x": np.full((3, 2), np.nan, dtype=np.float32)}, True),
    "no columns": ({"x": np.zeros((3, 0), dtype=np.float32)}, False),
    "no columns of edges": ({"edge_attr": np.zeros((2, 0), dtype=np.float32), "num_nodes": 3}, False),
    "NaN labels": ({"y": np.full(3, np.nan, dtype=np.float32), "num_nodes": 3}, True),
    "NaN labels in a split": ({"y": np.full(3, np.nan, np.float32), "splits": {"train": np.array([1])}}, True),
    "complex rows": ({"x": np.zeros((3, 2), dtype=np.complex64)}, False),
    "empty split": ({"splits": {"test": np.zeros(0, dtype=np.int64), "train": np.array([1])}}, True),
    "float split": ({"splits": {"train": np.zeros(2)}}, False),
    "split beyond the nodes": ({"splits": {"train": np.array([7])}}, False),
    "short mask": ({"train_mask": np.ones(2, dtype=bool)}, False),
}


@pytest.mark.parametrize("case", ODD)
def test_memory_and_store_accept_the_same(tmp_path: Path, case: str) -> None:
    given, accepted = ODD[case]
    data = {"edge_index": np.array([[0, 1], [1, 2]]), **given}
    if "x" in given or "splits" in given or "train_mask" in given:
        data.setdefault("num_nodes", 3)
    inputs = "train" if "splits" in given or "train_mask" in given else None

    def in_memory() -> None:
        Loader(data, [2], inputs).close()

    def on_disk() -> None:
        store = convert(data, tmp_path / "g", progress=False)
        Loader(store, [2], inputs).close()
        store.close()

    def outcome(way: Callable[[], None]) -> str:
        try:
            way()
        except FreshgoError as error:
            return type(error).__name__
        return "accepted"

    outcomes = [outcome(in_memory), outcome(on_disk)]
    assert outcomes[0] == outcomes[1], outcomes
    assert (outcomes[0] == "accepted") == accepted, outcomes


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (torch.zeros(3, 2, dtype=torch.complex64), r"x has dtype complex64, .*: store torch.view_as_real\(x\)"),
        (np.zeros((3, 2), np.complex128), r"x has dtype complex128, .*: store torch.view_as_real\(x\)"),
        (torch.zeros(3, 2).to(torch.float8_e5m2), r"x has dtype float8_e5m2, .*: store x.to\(torch.float16\)"),
        (torch.zeros(3, 2).to_sparse(), r"x must be a dense tensor, .*: x.to_dense\(\) is one"),
    ],
    ids=["complex", "array", "float8", "sparse"],
)
def test_what_to_store_instead_of_rows_that_no_store_has(tmp_path: Path, rows: Any, words: str) -> None:
    data = {"edge_index": torch.tensor([[0, 1, 2], [1, 2, 0]]), "x": rows}
    with pytest.raises(errors.DTypeError, match=words):
        Loader(data, [2])
    with pytest.raises(errors.DTypeError, match=words):
        convert(data, tmp_path / "g", progress=False)


@pytest.mark.parametrize("kind", ["meta", "sparse", "nested"])
def test_tensors_without_values_in_a_row(kind: str) -> None:
    """Whatever tensors an option takes, and wherever they would be read."""
    nested = torch.nested.nested_tensor([torch.zeros(2, dtype=torch.int64)] * 2)
    ids = {"meta": torch.arange(3, device="meta"), "sparse": torch.arange(3).to_sparse(), "nested": nested}[kind]
    data = {"edge_index": torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]]), "time": torch.arange(4), "x": torch.rand(3, 2)}
    calls: list[Any] = [
        lambda: Loader(data, [2], input_nodes=ids),
        lambda: Loader(data, [2], input_weight=ids),
        lambda: Loader(data, [2]).sample(ids),
        lambda: Loader(data, [2])(ids),
        lambda: Loader(data, [2], time_attr="time", input_time=ids),
        lambda: LinkLoader(data, [2], edge_label_index=ids),
        lambda: LinkLoader(data, [2], edge_label_index=torch.zeros(2, 3, dtype=torch.int64), edge_label=ids),
        lambda: Loader({**data, "time": ids}, [2]),
    ]
    for call in calls:
        with pytest.raises(errors.DTypeError, match=r"dense|numbers"):
            call()
