"""Compressed members of archives pass through a buffer, and what is wrong with them is said."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import layouts
import numpy as np
import pytest
import warm
from seeds import seed as seed_of

from freshgo import convert, errors

SMALL: dict[str, Any] = {"memory": "64MiB", "progress": False}

GROWTH = """
import re, sys
from pathlib import Path
import numpy as np
import freshgo

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

source, warm, target = sys.argv[1:]
small = {"edge_index": np.zeros((2, 9), np.int64), "x": np.zeros((5, 3), np.float32), "num_nodes": 5}
np.savez_compressed(f"{warm}.npz", **small)
freshgo.convert(f"{warm}.npz", warm, memory="16MiB", progress=False).close()
before = peak()
freshgo.convert(source, target, memory="16MiB", progress=False).close()
print(peak() - before)
"""


def test_a_member_passes_through_a_buffer(tmp_path: Path) -> None:
    """A member six times as large as the memory."""
    nodes = 1 << 17
    x = np.tile(np.arange(192, dtype=np.float32), (nodes, 1))
    arrays = {"x": x, "edge_index": np.arange(2 * nodes).reshape(2, -1) % nodes}
    assert x.nbytes == 6 * (16 << 20)
    with zipfile.ZipFile(tmp_path / "g.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.save(member, array)
    said = warm.run(GROWTH, tmp_path / "g.npz", tmp_path / "warm", tmp_path / "g")
    assert int(said) < 40 << 20, "16 MiB of memory, pieces of 1 MiB, and what the allocator keeps"


def broken(path: Path, change: str) -> None:
    """Damage an archive."""
    data = bytearray(path.read_bytes())
    if change == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif change == "flipped":
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo("node_feat.npy")
        data[info.header_offset + info.compress_size // 2] ^= 255
        path.write_bytes(data)
    else:
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("notes.txt", "hello")


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ("truncated", errors.FormatError, r"data\.npz: not a whole \.npz archive, or a truncated one"),
        ("flipped", errors.CorruptError, r"data\.npz, member 'node_feat': "),
        ("added", errors.FormatError, r"data\.npz, member 'notes\.txt': expected a member named \*\.npy"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"dtype": {"x": "float16"}}])
def test_damaged_archives(
    tmp_path: Path, change: str, kind: type[Exception], message: str, options: dict[str, Any]
) -> None:
    root = layouts.write_ogb_npz(tmp_path / "ogbn_papers100M", layouts.ogb_graph(seed_of(1), nodes=20_000))
    broken(root / "raw" / "data.npz", change)
    with pytest.raises(kind, match=message):
        convert(root, tmp_path / "g", **SMALL, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["ogbn_papers100M"]


def test_what_members_cannot_be(tmp_path: Path) -> None:
    edges, path = np.zeros((2, 4), np.int64), tmp_path / "g.npz"
    bad: tuple[tuple[dict[str, Any], str], ...] = (
        ({"x": np.array([{}] * 9)}, "member 'x': holds object"),
        ({"x": np.zeros((7, 2))}, "expected one row per node or one per edge"),
        ({"edge_index": np.zeros((3, 4), np.int64)}, r"edge_index must have shape \[2, num_edges\]"),
        (
            {"edge_index": np.full((2, 4), 9)},
            r"edge_index\[1, 0\] in g\.npz/edge_index is 9, expected an id in \[0, 9\)",
        ),
        ({"train_idx": np.array([3, 9])}, r"element 1 of split 'train' is 9, expected an id in \[0, 9\)"),
    )
    for changed, message in bad:
        np.savez_compressed(path, **{"edge_index": edges, "num_nodes": 9, **changed})
        with pytest.raises(errors.FreshgoError, match=message):
            convert(path, tmp_path / "g", **SMALL)
        assert [entry.name for entry in tmp_path.iterdir()] == ["g.npz"]
    with pytest.raises(errors.StoreNotFoundError, match="no such archive"):
        convert(tmp_path / "no.npz", tmp_path / "g", **SMALL)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("edge", "1,2\n3\n", r"edge\.csv\.gz: .*changed from 2 to 1 at row 1"),
        ("edge", "1,2\n3,x\n", r"edge\.csv\.gz: expected integers: .*'x'.* at row 1, column 2"),
        ("edge", "1,2,3\n", r"edge\.csv\.gz, row 0: 3 columns, expected 2"),
        ("edge", "1,2\n" * 900 + "1,300\n", r"edge\.csv\.gz: 901 edges, expected 900"),
        ("edge", "1,2\n" * 899 + "1,300\n", r"edge_index\[1, 899\] in edge\.csv\.gz is 300, expected an id"),
        ("node-feat", "1,2\n" * 299, r"x in node-feat\.csv\.gz has shape \[299, 2\], but there are 300 nodes"),
        ("node-feat", "0.5,2\n" * 299 + "0.5,two\n", r"node-feat\.csv\.gz: .*'two'.* at row 299, column 2"),
        ("num-node-list", "300\n7\n", r"num-node-list\.csv\.gz: 2 graphs, expected one"),
        ("num-edge-list", "many\n", r"num-edge-list\.csv\.gz: expected counts"),
        ("num-edge-list", "1e999\n", r"num-edge-list\.csv\.gz: expected counts"),
        ("num-edge-list", None, r"num-edge-list\.csv\.gz"),
    ],
)
def test_damaged_csv(tmp_path: Path, file: str, text: str | None, message: str) -> None:
    root = layouts.write_ogb_csv(tmp_path / "ogbn_arxiv", layouts.ogb_graph(seed_of(2)))
    path = root / "raw" / f"{file}.csv.gz"
    path.unlink()
    if text is not None:
        layouts.write_csv(path, [])
        import gzip

        path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(errors.FreshgoError, match=message):
        convert(root, tmp_path / "g", **SMALL)
    assert [entry.name for entry in tmp_path.iterdir()] == ["ogbn_arxiv"]


def test_a_truncated_csv(tmp_path: Path) -> None:
    root = layouts.write_ogb_csv(tmp_path / "ogbn_arxiv", layouts.ogb_graph(seed_of(3)))
    path = root / "raw" / "edge.csv.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(errors.FormatError, match=r"edge\.csv\.gz: not a whole gzip file"):
        convert(root, tmp_path / "g", **SMALL)
    assert [entry.name for entry in tmp_path.iterdir()] == ["ogbn_arxiv"]


def test_a_csv_that_cannot_be_read(tmp_path: Path) -> None:
    root = layouts.write_ogb_csv(tmp_path / "ogbn_arxiv", layouts.ogb_graph(seed_of(3)))
    path = root / "raw" / "node-feat.csv.gz"
    path.unlink()
    path.mkdir()
    with pytest.raises(errors.ReadError, match=r"node-feat\.csv\.gz: Is a directory"):
        convert(root, tmp_path / "g", **SMALL)
    assert [entry.name for entry in tmp_path.iterdir()] == ["ogbn_arxiv"]


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    root = layouts.write_ogb_npz(tmp_path / "ogbn_papers100M", layouts.ogb_graph(seed_of(4), nodes=50_000))

    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "reading data.npz/edge_index":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(root, tmp_path / "g", memory="64MiB", progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["ogbn_papers100M"]


def test_copies_that_do_not_fit_are_refused_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges of an archive are read more than once, and so lie beside the store as long as it is made."""
    np.savez_compressed(tmp_path / "g.npz", edge_index=np.zeros((2, 9), np.int64), num_nodes=5)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("usage", (), {"free": 143}))
    with pytest.raises(errors.WriteError, match=r"a copy of .*edge_index.* takes 144 bytes, .* has 143 free"):
        convert(tmp_path / "g.npz", tmp_path / "g", **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["g.npz"]
