"""Whole stores copied from URLs and to them: resumed after kills, compared with checksums, replaced in one step."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warm
from object_stores import Files, no_pauses, s3, s3_endpoint, web  # noqa: F401

import freshgo
from freshgo import errors, fetch, push
from freshgo._urls.place import Place
from freshgo.cli import main

SOME = np.random.default_rng(0).random((3000, 1000), dtype=np.float32)


def contents(path: str | Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in Path(path).iterdir()}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 12 MB of features."""
    path = tmp_path_factory.mktemp("stores") / "large.freshgo"
    edges = np.random.default_rng(0).integers(0, 3000, (2, 5000))
    freshgo.convert({"edge_index": edges, "x": SOME}, path, progress=False).close()
    return path


def served(path: Path, web: Files, monkeypatch: pytest.MonkeyPatch) -> str:  # noqa: F811
    """A store on the HTTP server, which has no directories to list."""
    web.objects = {f"s/{name}": data for name, data in contents(path).items()}
    names = sorted(web.objects)
    monkeypatch.setattr(Place, "listing", lambda self: [self.entry(f"{web.url}/{name}") for name in names])
    return f"{web.url}/s"


def test_a_store_comes_back_as_it_was(large: Path, tmp_path: Path, s3: Any) -> None:  # noqa: F811
    stages: list[tuple[str, int, int]] = []
    for url in ("s3://bucket/a/large.freshgo", "memory://stores/large.freshgo/", f"file://{tmp_path}/there"):
        assert push(large, url, progress=lambda *stage: stages.append(stage)) == url.rstrip("/")
        with fetch(url, tmp_path / "back", overwrite=True, progress=lambda *stage: stages.append(stage)) as store:
            assert np.array_equal(store["x"].numpy(), SOME)
            assert store.path == str(tmp_path / "back")
        assert contents(tmp_path / "back") == contents(large)
    size = sum(len(data) for data in contents(large).values())
    assert ("fetching", size, size) in stages
    assert {stage for stage, _, _ in stages} >= {"fetching", "pushing"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "there"]
    assert "bucket/a/large.freshgo/push.json" not in s3.find("bucket")


def test_a_link_in_the_place_of_a_store(large: Path, tmp_path: Path) -> None:
    """The store came in the place of the link, and the one behind it was marked as removed."""
    url, link, target = f"file://{tmp_path}/there", tmp_path / "link", tmp_path / "disk"
    push(large, url, progress=False)
    link.symlink_to(target)
    for _ in range(2):
        with fetch(url, link, overwrite=True, progress=False) as store:
            assert store.path == str(target)
        assert link.is_symlink() and contents(target) == contents(large)


def test_a_killed_fetch_goes_on_where_it_was(large: Path, tmp_path: Path, s3: Any, s3_endpoint: str) -> None:  # noqa: F811
    push(large, "s3://bucket/large", progress=False)
    program = f"""
import os, signal, freshgo
from freshgo._urls import reading
reading.PIECE = reading._FIRST = 1 << 20
def killed(stage, done, total):
    if stage == "fetching" and done > 5 << 20:
        os.kill(os.getpid(), signal.SIGKILL)
freshgo.fetch("s3://bucket/large", {str(tmp_path / "back")!r}, progress=killed)
"""
    warm.killed(program)
    assert not (tmp_path / "back").exists()
    held = sum(file.stat().st_size for file in (tmp_path / "back.fetch").rglob("*") if file.name != "source.json")
    assert held > 5 << 20
    first: list[int] = []
    fetch("s3://bucket/large", tmp_path / "back", progress=lambda stage, done, _: first.append(done)).close()
    assert first[0] >= 5 << 20  # so these were not read again
    assert contents(tmp_path / "back") == contents(large)
    assert [path.name for path in tmp_path.iterdir()] == ["back"]


def test_what_is_there_is_not_read_again(
    large: Path,
    tmp_path: Path,
    web: Files,  # noqa: F811
    no_pauses: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = served(large, web, monkeypatch)
    web.cuts = lambda path, start, end: 9_000_000 if path.endswith("x.bin") and start <= 9_000_000 < end else None
    with pytest.raises(errors.ReadError, match=r"x\.bin: reading bytes 6291456 to 10485760 failed 6 times"):
        fetch(url, tmp_path / "back", progress=False)
    assert not (tmp_path / "back").exists()
    web.cuts = lambda path, start, end: None
    web.requests.clear()
    fetch(url, tmp_path / "back", progress=False).close()
    assert contents(tmp_path / "back") == contents(large)
    read = [(path, start) for method, path, (start, end) in web.requests if method == "GET" and end - start > 1]
    assert min(start for path, start in read if path.endswith("x.bin")) == 6291456
    assert not any("indices" in path or "manifest" in path for path, _ in read)


def test_another_store_at_the_url_begins_anew(large: Path, store_path: Path, tmp_path: Path, s3: Any) -> None:  # noqa: F811
    push(large, "s3://bucket/s", progress=False)

    def ended(stage: str, done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("s3://bucket/s", tmp_path / "back", progress=ended)
    with pytest.raises(errors.StoreExistsError, match="pass overwrite=True"):
        push(store_path, "s3://bucket/s", progress=False)
    push(store_path, "s3://bucket/s", overwrite=True, progress=False)
    assert {Path(name).name for name in s3.find("bucket/s")} == set(contents(store_path))
    fetch("s3://bucket/s", tmp_path / "back", progress=False).close()
    assert contents(tmp_path / "back") == contents(store_path)


def test_a_push_that_was_ended_goes_on(large: Path, store_path: Path, tmp_path: Path, s3: Any) -> None:  # noqa: F811
    def ended(stage: str, done: int, total: int) -> None:
        if stage == "pushing" and done > total * 3 // 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        push(large, "s3://bucket/s", progress=ended)
    sent = {Path(name).name: info["LastModified"] for name, info in s3.find("bucket/s", detail=True).items()}
    assert "manifest.pb" not in sent
    assert not any(name.endswith("x.bin") for name in sent)  # of which a part was sent
    assert sent
    with pytest.raises(errors.StoreNotFoundError, match="was not pushed whole"):
        fetch("s3://bucket/s", tmp_path / "back", progress=False)
    with pytest.raises(errors.StoreExistsError, match="holds another store that was not pushed whole"):
        push(store_path, "s3://bucket/s", progress=False)
    time.sleep(1.1)  # so that an object that is written again has another time
    push(large, "s3://bucket/s", progress=False)
    again = {Path(name).name: info["LastModified"] for name, info in s3.find("bucket/s", detail=True).items()}
    assert {name for name in sent if again.get(name) == sent[name]} == set(sent) - {"push.json"}
    fetch("s3://bucket/s", tmp_path / "back", progress=False).close()
    assert contents(tmp_path / "back") == contents(large)


def test_a_damaged_object_is_an_error_and_read_again(large: Path, tmp_path: Path, s3: Any) -> None:  # noqa: F811
    push(large, "s3://bucket/s", progress=False)
    name = next(name for name in contents(large) if name.endswith("x.bin"))
    data = bytearray(contents(large)[name])
    data[5_000_000] ^= 1
    s3.pipe(f"bucket/s/{name}", bytes(data))
    with pytest.raises(errors.CorruptError, match=rf"what came is damaged: .*s3://bucket/s/{name} at offset 4997120"):
        fetch("s3://bucket/s", tmp_path / "back", progress=False)
    assert not (tmp_path / "back").exists()
    s3.pipe(f"bucket/s/{name}", contents(large)[name])
    fetch("s3://bucket/s", tmp_path / "back", progress=False).close()
    assert contents(tmp_path / "back") == contents(large)


def test_a_damaged_store_is_not_pushed(large: Path, tmp_path: Path, s3: Any) -> None:  # noqa: F811
    shutil.copytree(large, tmp_path / "damaged")
    file = next((tmp_path / "damaged").glob("*x.bin"))
    file.write_bytes(b"\1" + file.read_bytes()[1:])
    with pytest.raises(errors.CorruptError):
        push(tmp_path / "damaged", "s3://bucket/s", progress=False)
    assert not s3.find("bucket")


def test_paths_that_are_taken_and_urls_without_a_store(large: Path, tmp_path: Path, s3: Any, web: Files) -> None:  # noqa: F811
    push(large, "s3://bucket/s", progress=False)
    s3.pipe("bucket/other/file.txt", b"mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file.txt").touch()
    with pytest.raises(errors.StoreExistsError, match="already exists; pass overwrite=True"):
        fetch("s3://bucket/s", tmp_path / "mine", progress=False)
    with pytest.raises(errors.FormatError, match="exists and is not a store, so it is not replaced"):
        fetch("s3://bucket/s", tmp_path / "mine", overwrite=True, progress=False)
    with pytest.raises(errors.StoreExistsError, match="exists and is not a store, so it is not replaced"):
        push(large, "s3://bucket/other", overwrite=True, progress=False)
    assert s3.find("bucket/other") == ["bucket/other/file.txt"]
    for url, words in (
        ("s3://bucket/other", "not a store: it has no manifest.pb"),
        ("s3://bucket/none", "s3://bucket/none: no such store"),
        ("s3://no-bucket/s", "no such bucket"),
    ):
        with pytest.raises(errors.StoreNotFoundError, match=words):
            fetch(url, tmp_path / "back", progress=False)
    with pytest.raises(errors.StoreNotFoundError, match="no such bucket"):
        push(large, "s3://no-bucket/s", progress=False)
    with pytest.raises(errors.InvalidArgumentError, match="can be read, not written"):
        push(large, f"{web.url}/s", progress=False)
    with pytest.raises(errors.InvalidArgumentError, match="expected the URL of a store"):
        fetch(large, "s3://bucket/t")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="expected the URL of a store"):
        push("s3://bucket/s", os.fspath(tmp_path / "t"))
    with pytest.raises(errors.InvalidArgumentError, match="stores are used on a local disk"):
        fetch("s3://bucket/s", "s3://bucket/t")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]


def test_the_command_line_copies_stores(store_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "back")
    assert main(["push", str(store_path), "memory://cli/s"]) == 0
    assert main(["fetch", "memory://cli/s", target, "--json"]) == 0
    out = capsys.readouterr().out
    assert f"{store_path}: copied to memory://cli/s" in out
    assert json.loads(out[out.index("{") :])["path"] == target
    assert contents(target) == contents(store_path)
    assert main(["fetch", "memory://cli/s", target]) == 1
    assert "already exists; pass --overwrite" in capsys.readouterr().err
    assert main(["fetch", target, "memory://cli/s"]) == 1
    assert "expected the URL of a store" in capsys.readouterr().err
