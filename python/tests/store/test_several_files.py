"""Arrays in several files, and edges in Parquet: the store is that of one array."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warm

from freshgo import Loader, Store, convert, errors
from freshgo.cli import main

FILES = ("indptr.bin", "indices.bin", "edge_ids.bin")


def edges(seed: int = 0, count: int = 3000) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(400, size=(2, count))


def assert_same(store: Store, whole: Path, names: tuple[str, ...] = FILES) -> None:
    for name in names:
        assert (Path(store.path) / name).read_bytes() == (whole / name).read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "g"
    convert({"edge_index": edges(), "num_nodes": 400}, path, progress=False).close()
    return path


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64"])
def test_edges_in_npy_files(whole: Path, tmp_path: Path, dtype: str) -> None:
    paths = []
    for number, (first, end) in enumerate([(0, 1000), (1000, 1000), (1000, 1007), (1007, 3000)]):
        part = edges()[:, first:end].astype(dtype)
        paths.append(tmp_path / f"part{number}.npy")
        np.save(paths[-1], part.T if number == 3 else part)
    with convert({"edge_index": paths, "num_nodes": 400}, tmp_path / "g", memory="4MiB", progress=False) as store:
        assert_same(store, whole)
    with convert([str(path) for path in paths], tmp_path / "bare", progress=False) as store:
        assert_same(store, whole)
    assert not list(tmp_path.glob("*.sources"))


def test_tensors_and_types_in_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x, w, mask = rng.random((400, 7), np.float32), rng.random(3000, np.float32), rng.random(400) < 0.3
    np.save(tmp_path / "x0.npy", x[:100])
    np.save(tmp_path / "x1.npy", np.asfortranarray(x[100:]))
    np.save(tmp_path / "w0.npy", w[:1])
    np.save(tmp_path / "w1.npy", w[1:])
    np.save(tmp_path / "m0.npy", mask[:399])
    np.save(tmp_path / "m1.npy", mask[399:])
    np.save(tmp_path / "e0.npy", edges()[:, :2000])
    np.save(tmp_path / "e1.npy", edges()[:, 2000:])

    def parts(name: str) -> list[Path]:
        return [tmp_path / f"{name}0.npy", tmp_path / f"{name}1.npy"]

    cites = ("paper", "cites", "paper")
    graph: dict[Any, Any] = {
        "paper": {"x": parts("x"), "train_mask": parts("m")},
        cites: {"edge_index": parts("e"), "w": parts("w")},
    }
    with convert(graph, tmp_path / "g", weight_attr="w", dtype={"x": "float16"}, progress=False) as store:
        np.testing.assert_array_equal(store["paper"]["x"], x.astype(np.float16).astype(np.float32))
        np.testing.assert_array_equal(store[cites]["w"], w)
        np.testing.assert_array_equal(store["paper"].split("train"), mask.nonzero()[0])
        store.verify(progress=False)
        batch = next(iter(Loader(store, [-1], "paper", batch_size=400)))
        np.testing.assert_array_equal(batch[cites].edge_index[:, batch[cites].e_id.argsort()], edges())


def test_edges_in_parquet(whole: Path, tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    source, target = edges()
    paths = [tmp_path / "0.parquet", tmp_path / "1.pq"]
    for path, part, dtype in zip(paths, (slice(0, 100), slice(100, None)), (np.int32, np.int64), strict=True):
        parquet.write_table(
            pa.table({"src": source[part].astype(dtype), "dst": target[part]}), path, row_group_size=777
        )
    with convert({"edge_index": paths, "num_nodes": 400}, tmp_path / "g", progress=False) as store:
        assert_same(store, whole)
    parquet.write_table(pa.table({"a": source.astype(np.uint32), "b": target.astype(np.int32)}), paths[0])
    with convert({"edge_index": str(paths[0]), "num_nodes": 400}, tmp_path / "one", progress=False) as store:
        assert_same(store, whole)
    assert not list(tmp_path.glob("*.sources"))


def test_parquet_that_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "e.parquet"
    for columns, error, reason in (
        ({"a": [1], "b": [2], "c": [3]}, errors.InvalidArgumentError, r"has the columns a, b, c, expected two"),
        ({"a": [1], "b": [2.5]}, errors.DTypeError, "has double in the column b, expected integers"),
        ({"a": [1, None], "b": [2, 3]}, errors.InvalidArgumentError, "has a null in the column a"),
        ({"a": [1, -1], "b": [2, 3]}, errors.InvalidArgumentError, r"edge_index\[0, 1\] in .*e\.parquet is -1"),
        ({"a": [{"x": 1}], "b": [2]}, errors.DTypeError, r"has struct<.*> in the column a, expected integers"),
    ):
        parquet.write_table(pa.table(columns), path)
        with pytest.raises(error, match=reason):
            convert({"edge_index": path}, tmp_path / "g", progress=False)
    path.write_bytes(b"PAR1")
    with pytest.raises(errors.FormatError, match="not a whole Parquet file"):
        convert({"edge_index": path}, tmp_path / "g", progress=False)
    with pytest.raises(errors.StoreNotFoundError, match="no such Parquet file"):
        convert({"edge_index": tmp_path / "missing.parquet"}, tmp_path / "g", progress=False)
    parquet.write_table(pa.table({"a": [1, 1], "b": [2, 3]}), path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("usage", (), {"free": 31}))
    with pytest.raises(errors.WriteError, match=r"a copy of the edges takes 32 bytes.* has 31 free") as full:
        convert({"edge_index": path}, tmp_path / "g", progress=False)
    assert full.value.errno == errno.ENOSPC
    assert sorted(found.name for found in tmp_path.iterdir()) == ["e.parquet"]


def test_damaged_parquet(tmp_path: Path) -> None:
    """The footer is read before the copy begins; an error of pyarrow came from the rows."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "e.parquet"
    source, target = edges()
    parquet.write_table(pa.table({"src": source, "dst": target}), path)
    content = path.read_bytes()
    for offset in (4, len(content) // 3):
        path.write_bytes(content[:offset] + b"\xff" * 40 + content[offset + 40 :])
        with pytest.raises(errors.FormatError, match=r"e\.parquet: not a whole Parquet file: "):
            convert({"edge_index": path}, tmp_path / "g", progress=False)
    assert [found.name for found in tmp_path.iterdir()] == ["e.parquet"]


LARGE = """
import sys, pyarrow, freshgo
freshgo.convert({"edge_index": sys.argv[1], "num_nodes": 1 << 20}, sys.argv[2], memory="32MiB", progress=False).close()
print(pyarrow.default_memory_pool().max_memory())
"""


def test_a_row_group_is_read_in_pieces(tmp_path: Path) -> None:
    """Two columns of 16 MB were read whole."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    ends = np.random.default_rng(2).integers(1 << 20, size=(2, 2_000_000))
    how = {"row_group_size": 2_000_000, "use_dictionary": False, "compression": "none"}
    parquet.write_table(pa.table({"src": ends[0], "dst": ends[1]}), tmp_path / "e.parquet", **how)
    assert int(warm.run(LARGE, tmp_path / "e.parquet", tmp_path / "g")) < 12 << 20


def test_files_that_do_not_follow_one_another(tmp_path: Path) -> None:
    arrays = {"a": edges(), "narrow": edges().astype(np.int32), "cube": np.zeros((2, 3, 4), int), "bad": edges() + 1}
    for name, array in {**arrays, "x": np.zeros((5, 3)), "y": np.zeros((5, 4))}.items():
        np.save(tmp_path / f"{name}.npy", array)

    def refused(error: type[Exception], reason: str, **given: Any) -> None:
        graph = {key: [str(tmp_path / name) for name in names] for key, names in given.items()}
        with pytest.raises(error, match=reason):
            convert({"num_nodes": 400, **graph}, tmp_path / "g", progress=False)

    refused(
        errors.DTypeError, r"edge_index has dtype int64 in .*a\.npy and int32 in", edge_index=["a.npy", "narrow.npy"]
    )
    refused(errors.InvalidArgumentError, r"in each file, got \[2, 3, 4\] in", edge_index=["a.npy", "cube.npy"])
    refused(errors.InvalidArgumentError, r"which is number \d+ in .*bad\.npy, is 400", edge_index=["a.npy", "bad.npy"])
    refused(errors.InvalidArgumentError, "files of one kind", edge_index=["a.npy", "e.parquet"])
    refused(errors.StoreNotFoundError, "missing", edge_index=["a.npy", "missing.npy"])
    refused(errors.InvalidArgumentError, "expected equal rows", edge_index=["a.npy"], x=["x.npy", "y.npy"])
    refused(errors.InvalidArgumentError, "edges alone are read from Parquet", edge_index=["a.npy"], x=["x.parquet"])
    with pytest.raises(errors.InvalidArgumentError, match="lists URLs"):
        convert({"edge_index": ["s3://bucket/a.npy"]}, tmp_path / "g", progress=False)
    with pytest.raises(errors.InvalidArgumentError, match="lists URLs"):
        convert({"edge_index": ["s3://bucket/a.parquet"]}, tmp_path / "g", progress=False)
    assert not (tmp_path / "g").exists()


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's error came from the thread that reads it."""
    paths, read = [tmp_path / "0.npy", tmp_path / "1.npy"], np.fromfile
    for path in paths:
        np.save(path, np.zeros((200, 3), np.float32))

    def failing(path: str, *given: Any, **how: Any) -> Any:
        if path == str(paths[1]):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return read(path, *given, **how)

    monkeypatch.setattr(np, "fromfile", failing)
    with pytest.raises(errors.ReadError, match=r"1\.npy: No such file") as removed:
        convert({"edge_index": edges(), "x": paths}, tmp_path / "g", progress=False)
    assert removed.value.errno == errno.ENOENT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.npy", "1.npy"]


def test_command_line(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "0.npy", edges()[:, :40])
    np.save(tmp_path / "1.npy", edges()[:, 40:])
    given = ["--edges", str(tmp_path / "0.npy"), "--edges", str(tmp_path / "1.npy")]
    assert main(["convert", *given, str(tmp_path / "g"), "--quiet"]) == 0
    with Store.open(tmp_path / "g") as store:
        assert_same(store, whole)
    assert main(["convert", *given, "--tables", "t.toml", str(tmp_path / "both")]) == 2
    assert "expected SOURCE STORE, --edges FILE STORE, or --tables SPEC STORE" in capsys.readouterr().err
