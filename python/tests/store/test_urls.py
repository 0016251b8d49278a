"""Tables and arrays at URLs: the stores of local files, or errors that name object and offset and keep secrets."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from object_stores import Files, no_pauses, s3, s3_endpoint, web  # noqa: F401
from pyarrow import csv, parquet
from tables import checksums

import freshgo
from freshgo import Table, convert, convert_tables
from freshgo._urls import reading

SECRET = "wJalrXUtnFEMI-K7MDENG-secret"


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(arrays: dict[str, Any], *, compressed: bool) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.getvalue()


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Pages in two Parquet files, of which each has a year, and links in CSV, among files that are none of tables."""
    rng = np.random.default_rng(0)
    names = [f"p{i}" for i in range(2000)]
    for year, part in ((2020, slice(0, 700)), (2021, slice(700, 2000))):
        directory = tmp_path / "pages" / f"year={year}"
        directory.mkdir(parents=True)
        count = len(names[part])
        table = pa.table({"name": names[part], "v": rng.random(count), "unused": list(rng.random((count, 64)))})
        parquet.write_table(table, directory / "part.parquet", row_group_size=300)
    (tmp_path / "pages" / "_SUCCESS").touch()
    (tmp_path / "pages" / "README.md").write_text("no table")
    csv.write_csv(pa.table({"a": rng.choice(names, 30000), "b": rng.choice(names, 30000)}), tmp_path / "links.csv")
    return tmp_path


def convert_from(root: str, path: Path, links: str | None = None, **options: Any) -> freshgo.Store:
    nodes = Table(f"{root}/pages", id="name", features=["v"], tensors={"year": "year"})
    edges = Table(links or f"{root}/links.csv", src="a", dst="b")
    return convert_tables(nodes, edges, path, progress=False, **options)


def test_tables_at_urls_give_the_store_of_local_files(tables: Path, tmp_path: Path, s3: Any, web: Files) -> None:  # noqa: F811
    expected = checksums(convert_from(str(tables), tmp_path / "local.freshgo"))
    s3.put(str(tables / "pages"), "bucket/run=7/pages", recursive=True)
    s3.put(str(tables / "links.csv"), "bucket/run=7/links.csv")
    web.objects["with space/links.csv"] = (tables / "links.csv").read_bytes()
    stages: list[str] = []
    store = convert_tables(
        Table("s3://bucket/run=7/pages", id="name", features=["v"], tensors={"year": "year"}),
        Table("s3://bucket/run=7/links.csv", src="a", dst="b"),
        tmp_path / "s3.freshgo",
        progress=lambda stage, done, total: stages.append(f"{stage} {done}/{total}"),
    )
    assert checksums(store) == expected
    size = (tables / "links.csv").stat().st_size
    assert f"copying s3://bucket/run=7/links.csv {size}/{size}" in stages
    for ranges in (True, False):
        web.ranges = ranges
        url = f"{web.url}/with%20space/links.csv"
        store = convert_from("s3://bucket/run=7", tmp_path / "s3.freshgo", url, overwrite=True)
        assert checksums(store) == expected
    nodes = Table("s3://bucket/run=7/pages/*/*.parquet", id="name", features=["v"], tensors={"year": "year"})
    edges = Table([f"file://{tables}/links.csv"], src="a", dst="b")
    store = convert_tables(nodes, edges, tmp_path / "s3.freshgo", overwrite=True, progress=False)
    assert checksums(store) == expected
    assert not list(tmp_path.glob("*.tables"))


def test_an_error_of_a_row_names_the_url(tables: Path, tmp_path: Path, s3: Any) -> None:  # noqa: F811
    s3.put(str(tables / "pages"), "bucket/pages", recursive=True)
    s3.pipe("bucket/links.csv", b"a,b\np1,p2\np1,nobody\n")
    with pytest.raises(freshgo.errors.InvalidArgumentError, match=r"row 1 of s3://bucket/links.csv.*nobody"):
        convert_from("s3://bucket", tmp_path / "g.freshgo")
    assert not (tmp_path / "g.freshgo").exists()


def test_directories_that_are_columns_need_a_path_without_any(tables: Path, tmp_path: Path, s3: Any) -> None:  # noqa: F811
    s3.put(str(tables / "pages"), "bucket/pages", recursive=True)
    (tmp_path / "a=1").mkdir()
    with pytest.raises(freshgo.errors.InvalidArgumentError, match="give the store a path without '='"):
        convert_from("s3://bucket", tmp_path / "a=1" / "g.freshgo")


@pytest.fixture
def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "edge_index": rng.integers(0, 3000, (2, 200_000)),
        "train_mask": rng.random(3000) < 0.5,
        "x": rng.random((3000, 500), dtype=np.float32),
        "y": rng.integers(0, 5, 3000),
    }


def test_arrays_at_urls_give_the_store_of_arrays(arrays: dict[str, Any], tmp_path: Path, s3: Any, web: Files) -> None:  # noqa: F811
    with convert({**arrays, "splits": {"val": range(10)}}, tmp_path / "local", progress=False) as store:
        expected = checksums(store)
    files = {name: npy(array) for name, array in arrays.items()} | {"val_idx": npy(np.arange(10))}
    for name, data in files.items():
        s3.pipe(f"bucket/graph/{name}.npy", data)
        web.objects[f"{name}.npy"] = data
    transposed = {"pairs": arrays["edge_index"].T.copy(), "columns": np.asfortranarray(arrays["x"])}
    for name, array in transposed.items():
        s3.pipe(f"bucket/other/{name}.npy", npy(array))
    members = {**arrays, "val_idx": np.arange(10)}
    s3.pipe("bucket/g.npz", npz(members, compressed=False))
    s3.pipe("bucket/small.npz", npz(members, compressed=True))
    web.ranges = False
    urls = {name: f"{web.url}/{name}.npy" for name in arrays}
    forms: list[Any] = [
        "s3://bucket/graph",
        "s3://bucket/g.npz",
        "s3://bucket/small.npz",
        {**urls, "splits": {"val": "s3://bucket/graph/val_idx.npy"}},
        {**urls, "edge_index": "s3://bucket/other/pairs.npy", "x": "s3://bucket/other/columns.npy"}
        | {"splits": {"val": range(10)}},
    ]
    for form in forms:
        with convert(form, tmp_path / "remote", overwrite=True, progress=False) as store:
            assert checksums(store) == expected, form
    types = {
        "paper": {"x": "s3://bucket/graph/x.npy"},
        ("paper", "cites", "paper"): "s3://bucket/graph/edge_index.npy",
    }
    for name, source in {"paper/x": "x", "paper__cites__paper/edge_index": "edge_index"}.items():
        s3.cp(f"bucket/graph/{source}.npy", f"bucket/types/{name}.npy")
    local = {"paper": {"x": arrays["x"]}, ("paper", "cites", "paper"): arrays["edge_index"]}
    with convert(local, tmp_path / "types", progress=False) as store:
        expected = checksums(store)
    for form in (types, "s3://bucket/types/"):
        with convert(form, tmp_path / "remote", overwrite=True, progress=False) as store:
            assert checksums(store) == expected, form
    assert not list(tmp_path.glob("*.sources"))


def test_a_graph_of_another_program_may_be_at_a_url(tmp_path: Path, s3: Any) -> None:  # noqa: F811
    s3.pipe("bucket/g.mtx", b"%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n3 1\n")
    with convert("s3://bucket/g.mtx", tmp_path / "g", progress=False) as store:
        assert (store.num_nodes, store.num_edges) == (3, 2)


def test_what_is_no_array_says_so(tmp_path: Path, s3: Any) -> None:  # noqa: F811
    s3.pipe("bucket/cut.npy", npy(np.zeros((2, 1000), np.int64))[:5000])
    s3.pipe("bucket/text.npy", b"none")
    s3.pipe("bucket/cut.npz", npz({"edge_index": np.zeros((2, 9), np.int64)}, compressed=False)[:-30])
    s3.pipe("bucket/ogb/raw/edge.csv.gz", b"")
    s3.pipe("bucket/a.bin", b"")
    edges = np.zeros((2, 3), np.int64)
    for data, message in {
        "s3://bucket/cut.npy": "s3://bucket/cut.npy: truncated: the header promises 16000 bytes",
        "s3://bucket/text.npy": "s3://bucket/text.npy: not a .npy file",
        "s3://bucket/cut.npz": "s3://bucket/cut.npz: not a whole .npz archive",
        "s3://bucket/ogb": "has no .npy files: other graphs, such as directories of OGB",
        "s3://bucket/a.bin": "is no .npy, .npz or graph file",
    }.items():
        with pytest.raises((freshgo.errors.FormatError, freshgo.errors.InvalidArgumentError), match=message):
            convert(data, tmp_path / "g", progress=False)
    with pytest.raises(freshgo.errors.StoreNotFoundError, match=r"s3://bucket/x\.npy: no such object"):
        convert({"edge_index": edges, "x": "s3://bucket/x.npy"}, tmp_path / "g", progress=False)
    with pytest.raises(freshgo.errors.InvalidArgumentError, match="is a URL that lost a slash in pathlib"):
        convert(Path("s3://bucket/cut.npz"), tmp_path / "g")
    assert not list(tmp_path.iterdir())


EDGES = npy(np.random.default_rng(0).integers(0, 1000, (2, 600_000)))


@pytest.mark.parametrize("ranges", [True, False])
def test_a_lost_connection_is_tried_again(ranges: bool, tmp_path: Path, web: Files, no_pauses: None) -> None:  # noqa: F811
    web.objects["edges.npy"], web.ranges = EDGES, ranges
    cuts = [5, 1_500_000, 3_000_000, 9_000_000]

    def once(path: str, start: int, end: int) -> int | None:
        cut = next((cut for cut in cuts if start <= cut < end), None)
        if cut is not None:
            cuts.remove(cut)
        return cut

    web.cuts = once
    with convert(f"{web.url}/edges.npy", tmp_path / "g", progress=False) as store:
        assert not cuts
        found = checksums(store)
    with convert(np.load(io.BytesIO(EDGES)), tmp_path / "local", progress=False) as store:
        assert checksums(store) == found


@pytest.mark.parametrize("ranges", [True, False])
def test_a_connection_that_is_always_lost_is_an_error(
    ranges: bool,
    tmp_path: Path,
    web: Files,  # noqa: F811
    no_pauses: None,  # noqa: F811
) -> None:
    web.objects["edges.npy"], web.ranges = EDGES, ranges
    web.cuts = lambda path, start, end: 5_000_000 if start <= 5_000_000 < end else None
    expected = r"bytes 2097280 to 6291584 failed 6 times" if ranges else r"from byte \d+ on failed 6 times"
    tables = Table(f"{web.url}/edges.npy", src="a", dst="b", format="csv")
    for call in (
        lambda: convert(f"{web.url}/edges.npy", tmp_path / "g", progress=False),
        lambda: convert_tables(None, tables, tmp_path / "g", missing="add", progress=False),
    ):
        web.requests.clear()
        with pytest.raises(freshgo.errors.ReadError, match=rf"edges\.npy: reading {expected}"):
            call()
        assert not list(tmp_path.iterdir())
        read = [start for method, _, (start, end) in web.requests if method == "GET" and start <= 5_000_000 < end]
        # Six attempts, one request for the header and one that asks for ranges. aiohttp sends a request that found its
        # connection closed once again, whether the attempt then fails or not.
        assert 6 <= len(read) <= 2 * (6 + 2)
        expected = expected.replace("2097280", "2097152").replace("6291584", "6291456")


def test_an_object_that_changes_is_an_error(tmp_path: Path, web: Files, no_pauses: None) -> None:  # noqa: F811
    web.objects["edges.npy"] = EDGES

    def shorten(path: str, start: int, end: int) -> None:
        if start > 6_000_000:
            web.objects["edges.npy"] = EDGES[:6_000_000]

    web.cuts = shorten
    with pytest.raises(freshgo.errors.ReadError, match=r"edges\.npy: the object changed while it was being read"):
        convert(f"{web.url}/edges.npy", tmp_path / "g", progress=False)
    assert not list(tmp_path.iterdir())


def test_few_bytes_are_read_ahead(web: Files) -> None:  # noqa: F811
    web.objects["x"] = bytes(64 << 20)
    place = reading.Place(f"{web.url}/x")
    entry = place.entry()
    assert entry is not None
    pieces = reading.Reader(place, entry).pieces()
    taken = 0
    for most in (reading._FIRST, *(reading.MEMORY for _ in range(5))):
        taken += len(next(pieces))
        deadline = time.monotonic() + 0.2
        while time.monotonic() < deadline:
            asked = sum(end - start for method, _, (start, end) in web.requests if method == "GET")
            assert asked - taken <= most
            time.sleep(0.02)
    pieces.close()


def refused(call: Callable[[], object], kind: type[Exception], *words: str) -> str:
    """The text of an error and of its traceback, which has no secrets."""
    with pytest.raises(kind) as found:
        call()
    text = "".join(traceback.format_exception(found.value))
    for secret in (SECRET, "X-Amz", "hunter2", "AKIA"):
        assert secret not in str(found.value)
        assert all(secret not in line for line in text.splitlines() if not line.startswith("    "))  # but code
    for word in words:
        assert word in str(found.value)
    return text


def test_what_cannot_be_read_says_why(
    tmp_path: Path,
    s3: Any,  # noqa: F811
    web: Files,  # noqa: F811
    no_pauses: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    errors = freshgo.errors

    def read(url: str) -> Callable[[], object]:
        return lambda: convert_tables(None, Table(url, src="a", dst="b"), tmp_path / "g", missing="add", progress=False)

    signed = web.url.replace("://", "://me:hunter2@") + f"/no.csv?X-Amz-Signature={SECRET}&X-Amz-Credential=AKIA7"
    refused(read("s3://bucket/no.csv"), errors.StoreNotFoundError, "s3://bucket/no.csv: no such object")
    refused(read("s3://bucket/*.csv"), errors.StoreNotFoundError, "s3://bucket/*.csv: no object matches")
    refused(read("s3://no-bucket/no.csv"), errors.StoreNotFoundError, "no such bucket")
    refused(read("s3://Bad_Bucket!/no.csv"), errors.InvalidArgumentError, "s3://Bad_Bucket!/no.csv")
    refused(read(signed), errors.StoreNotFoundError, f"{web.url}/no.csv?...: no such object")
    refused(read("s4://bucket/no.csv"), errors.InvalidArgumentError, "'s4://bucket/no.csv' is no URL that fsspec knows")
    for status in (401, 403):
        web.status = lambda path, status=status: status
        refused(read(signed), errors.StorePermissionError, f"access denied ({status})", "/no.csv?...")
    web.status = lambda path: 503
    refused(read(signed), errors.ReadError, "failed 6 times", "503", "/no.csv?...")
    web.status = lambda path: 400
    refused(read(signed), errors.ReadError, "refused the request with status 400")
    refused(read("http://me:hunter2@127.0.0.1:9/x.csv"), errors.ReadError, "failed 6 times: ConnectionRefusedError")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    refused(read("s3://bucket/no.csv"), errors.StorePermissionError, "no credentials", "AWS_ACCESS_KEY_ID")
    assert not list(tmp_path.iterdir())


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url, module, package in (
        ("s3://bucket/g.npz", "s3fs", "pip install 'freshgo[remote]'"),
        ("https://example.org/g.npz", "fsspec.implementations.http", "pip install 'freshgo[remote]'"),
        ("gs://bucket/g.npz", "gcsfs", "pip install gcsfs"),
        ("s3://bucket/g.npz", "fsspec.core", "pip install 'freshgo[remote]'"),
    ):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, module, None)
            for known in list(fsspec.registry):
                patched.delitem(sys.modules["fsspec.registry"]._registry, known)
            with pytest.raises(freshgo.errors.LibraryError) as found:
                convert(url, tmp_path / "g", progress=False)
            assert package in str(found.value)


def test_a_pause_can_be_interrupted(tmp_path: Path, web: Files, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr("freshgo._urls.place.PAUSES", (600.0,))
    web.objects.update({"e.npy": npy(np.zeros((2, 10), np.int64)), "x.npy": npy(np.zeros((10, 400_000), np.float32))})
    web.cuts = lambda path, start, end: 4_000_000 if start <= 4_000_000 < end else None  # in the thread of a stream
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for data in ({"edge_index": f"{web.url}/e.npy", "x": f"{web.url}/x.npy"}, f"{web.url}/x.npy"):
            signal.setitimer(signal.ITIMER_REAL, 1.0)
            with pytest.raises(KeyboardInterrupt):
                convert(data, tmp_path / "g", progress=False)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not list(tmp_path.iterdir())


def test_urls_where_only_a_local_path_works(tmp_path: Path, store: Any) -> None:
    errors = freshgo.errors
    url = "s3://me:hunter2@bucket/g.freshgo"
    for call in (
        lambda: freshgo.Store.open(url),
        lambda: freshgo.Loader(url, num_neighbors=[2]),
        lambda: convert({"edge_index": np.zeros((2, 1), np.int64)}, url),
        lambda: convert_tables(None, Table("x.csv", src="a", dst="b"), url, missing="add"),
        lambda: freshgo.update(store, url, tensors={"z": np.zeros(store.num_nodes)}),
    ):
        refused(call, errors.InvalidArgumentError, "stores are used on a local disk: freshgo.fetch(url, path)")
    with pytest.raises(errors.InvalidArgumentError, match=r"z is 's3://b/z.npy': only convert reads URLs"):
        freshgo.update(store, tmp_path / "u", tensors={"z": "s3://b/z.npy"})


def test_local_paths_import_nothing_of_fsspec(tmp_path: Path) -> None:
    program = """
import sys
import numpy as np
import freshgo
np.savez("g.npz", edge_index=np.zeros((2, 3), np.int64))
freshgo.convert("g.npz", "a.freshgo", progress=False)
open("e.csv", "w").write("a,b\\n1,2\\n")
freshgo.convert_tables(None, freshgo.Table("e.csv", src="a", dst="b"), "b.freshgo", missing="add", progress=False)
found = [name for name in sys.modules if name.startswith(("fsspec", "aiohttp", "s3fs"))]
assert not found, found
"""
    subprocess.run([sys.executable, "-I", "-c", program], cwd=tmp_path, check=True)
