"""infer into objects at URLs: whole or not at all, and computed once."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import hetero_graph, random_graph
from object_stores import no_pauses, s3, s3_endpoint  # noqa: F401

import freshgo
from freshgo import errors, infer

tg = pytest.importorskip("torch_geometric.nn")
parquet = pytest.importorskip("pyarrow.parquet")

HOW: dict[str, Any] = {"memory": "64MiB", "progress": False}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "graph"
    freshgo.convert(random_graph(3000, 12_000, seed=8), path, progress=False).close()
    return path


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(3)
    return tg.GraphSAGE(24, 16, 2, 5).eval()


def test_objects_are_the_files_that_infer_writes(path: Path, tmp_path: Path, model: Any, s3: Any) -> None:  # noqa: F811
    local = infer(model, path, tmp_path / "e.parquet", **HOW)
    stages = []
    url = "s3://bucket/out/e.parquet"
    out = infer(model, path, url, **HOW | {"progress": lambda stage, done, total: stages.append((stage, done, total))})
    assert out == url
    size = local.stat().st_size
    assert (f"writing {url}", size, size) in stages
    table = parquet.read_table(io.BytesIO(s3.cat("bucket/out/e.parquet")))
    assert table.equals(parquet.read_table(local))
    with pytest.raises(
        errors.StoreExistsError, match=r"s3://bucket/out/e\.parquet already exists; pass overwrite=True"
    ):
        infer(model, path, url, **HOW)
    infer(model, path, "s3://bucket/e.npy", **HOW)
    rows = infer(model, path, tmp_path / "e.npy", **HOW)
    assert np.array_equal(np.load(io.BytesIO(s3.cat("bucket/e.npy"))), np.load(rows))
    infer(model, path, f"file://{tmp_path}/again.npy", **HOW)
    assert (tmp_path / "again.npy").read_bytes() == rows.read_bytes()
    with pytest.raises(errors.InvalidArgumentError, match="stores are used on a local disk"):
        infer(model, path, ("s3://bucket/store", "emb"), **HOW)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def layer(h: dict[str, torch.Tensor], batch: Any) -> dict[str, torch.Tensor]:
    return {name: h[name][: batch[name].batch_size, :3] + 1 for name in ("paper", "author") if name in h}


def test_each_node_type_is_an_object(tmp_path: Path, s3: Any) -> None:  # noqa: F811
    with freshgo.convert(hetero_graph(), tmp_path / "typed", progress=False) as store:
        local = infer(None, store, tmp_path / "out.parquet", layers=[layer], **HOW)
        infer(None, store, "s3://bucket/out.parquet", layers=[layer], **HOW)
    assert isinstance(local, Path)
    names = sorted(file.name for file in local.iterdir())
    assert s3.find("bucket") == [f"bucket/out.parquet/{name}" for name in names]
    for name in names:
        table = parquet.read_table(io.BytesIO(s3.cat(f"bucket/out.parquet/{name}")))
        assert table.equals(parquet.read_table(local / name))


@pytest.mark.parametrize(
    ("fault", "replaces"), [("_upload_chunk", True), ("commit", False), ("commit", True), ("info", False)]
)
def test_the_objects_of_all_types_appear_together_or_not_at_all(
    tmp_path: Path,
    s3: Any,  # noqa: F811
    no_pauses: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    replaces: bool,
) -> None:
    """The request that fails is one for the last object: with its data, by which it appears, or that looks at it."""
    import s3fs

    def uploads() -> list[str]:
        found = s3.call_s3("list_multipart_uploads", Bucket="bucket").get("Uploads") or []
        return sorted(of["Key"].removeprefix("out/") for of in found)

    def there() -> dict[str, bytes]:
        return {path.removeprefix("bucket/out/"): s3.cat(path) for path in s3.find("bucket")}

    names = ["author.npy", "paper.npy"]
    calls: list[tuple[list[str], list[str]]] = []
    before = dict.fromkeys(names if replaces else [], b"old")
    s3.pipe({f"bucket/out/{name}": data for name, data in before.items()})
    of = s3fs.core.S3File if fault != "info" else s3fs.core.S3FileSystem
    real = getattr(of, fault)

    def lost(self: Any, *given: Any, **options: Any) -> Any:
        path = str(given[0] if fault == "info" else self.path)
        if path.endswith("paper.npy") and (fault != "info" or "paper.npy" not in uploads()):
            calls.append((uploads(), sorted(name for name, data in there().items() if data != b"old")))
            raise ConnectionResetError("lost")
        return real(self, *given, **options)

    with freshgo.convert(hetero_graph(), tmp_path / "typed", progress=False) as store:
        how = {**HOW, "layers": [layer], "overwrite": replaces}
        local = infer(None, store, tmp_path / "out", layers=[layer], **HOW)
        assert isinstance(local, Path)
        with monkeypatch.context() as patched:
            patched.setattr(of, fault, lost)
            with pytest.raises(errors.WriteError, match=r"out/paper\.npy"):
                infer(None, store, "s3://bucket/out", **how)
        if fault == "_upload_chunk":
            assert all(new == [] for _, new in calls)
            assert there() == before
        elif fault == "commit":
            assert calls[0] == (["paper.npy"], ["author.npy"])  # everything was sent when the first appeared
        new = {name: (local / name).read_bytes() for name in names}
        if replaces and fault != "_upload_chunk":
            left = {"author.npy": new["author.npy"], "paper.npy": b"old" if fault == "commit" else new["paper.npy"]}
            assert there() == left
        else:
            assert there() == before
        assert uploads() == []
        infer(None, store, "s3://bucket/out", **how)
        assert there() == new


def test_an_upload_that_fails_leaves_nothing_and_computes_nothing_again(
    path: Path,
    model: Any,
    s3: Any,  # noqa: F811
    no_pauses: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import s3fs

    def lost(*_: Any, **__: Any) -> None:
        raise ConnectionResetError("lost")

    stages: list[str] = []
    for fault in ("_upload_chunk", "commit"):
        with monkeypatch.context() as patched:
            patched.setattr(s3fs.core.S3File, fault, lost)
            with pytest.raises(errors.WriteError, match=r"writing failed 6 times: ConnectionResetError: lost"):
                infer(model, path, "s3://bucket/e.parquet", **HOW)
        assert not s3.find("bucket")
        assert not s3.call_s3("list_multipart_uploads", Bucket="bucket").get("Uploads")
    infer(model, path, "s3://bucket/e.parquet", **HOW | {"progress": lambda stage, *_: stages.append(stage)})
    assert set(stages) == {"rows to Parquet", "writing s3://bucket/e.parquet"}
    with pytest.raises(errors.StoreNotFoundError, match="no such bucket"):
        infer(model, path, "s3://no-bucket/e.parquet", **HOW)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
