"""What a loader says that it reads is what the kernel reads from the device for its process.

Reads are direct, so nothing of a store comes from the page cache and every byte of a request is a byte of the device.
Besides what the loader reads, a process reads little: blocks in which the file system keeps where a file lies, and
pages of the interpreter that were dropped meanwhile. So the kernel may count a little more, but never less.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warm
from seeds import seed as seed_of

import freshgo

NODES, WIDTH = 40_000, 128
LITTLE = 2 << 20
"""Bytes besides those of the loader; a twentieth of the least that a test reads, were it needed at all."""

LOADERS: dict[str, dict[str, Any]] = {
    "neighbours on disk": {"cache": None, "neighbor_cache": 0},
    "lru": {"cache": "lru", "feature_cache": "2MiB"},
    "page-once": {"feature_cache": "2MiB", "plan": {"transfer": "page-once"}},
    "scratch file": {"memory": "128MiB", "feature_cache": "2MiB", "plan": {"transfer": "pack+forward"}},
}
"""Options as JSON; ``plan`` holds the arguments of a Belady."""


MEASURE = """
    import json, mmap, os, re, sys, time
    from pathlib import Path
    sys.dont_write_bytecode = True
    import freshgo

    def counted():
        text = Path("/proc/self/io").read_text()
        return {key: int(re.search(rf"^{key}_bytes: (\\d+)", text, re.M)[1]) for key in ("read", "write")}

    def skip(why):
        print(json.dumps({"skip": why}))
        sys.exit()

    path = sys.argv[1]
    try:
        counted()
    except OSError as error:
        skip(str(error))
    largest = max(Path(path).iterdir(), key=lambda file: file.stat().st_size)
    piece = mmap.mmap(-1, 1 << 20)
    try:
        descriptor = os.open(largest, os.O_RDONLY | os.O_DIRECT)
        os.preadv(descriptor, [piece], 0)  # the file system now knows where the file lies
        before = counted()["read"]
        os.preadv(descriptor, [piece], 0)
    except OSError as error:
        skip(f"direct reads are refused: {error}")
    if counted()["read"] - before != len(piece):
        skip("the kernel does not count what this file system reads")

    def epoch(loader):
        for batch in loader:
            assert bool((batch.x[:, 0] == batch.n_id).all())

    def settled(loader):
        # The loader goes on to prepare the next epoch, as far as it may.
        while True:
            before = loader.stats()
            time.sleep(0.3)
            after = loader.stats()
            if all(before[k] == after[k] for k in ("bytes_read", "scratch_written", "edges", "seconds_planning")):
                return after

    def measure(options):
        if (plan := options.pop("plan", None)) is not None:
            options["cache"] = freshgo.Belady(**plan, scratch=sys.argv[3])
        loader = freshgo.Loader(
            path, [8, 4], range(8000), batch_size=1000, shuffle=True, seed=1,
            disk=freshgo.Disk(io=sys.argv[2]), **{"memory": "64MiB", **options}
        )
        opened = counted()
        for _ in range(3):
            epoch(loader)  # whatever happens for the first time, and enough of what is set aside
        before, kernel = settled(loader), counted()
        epoch(loader)
        after, now = settled(loader), counted()
        loader.close()
        return {
            "engine": after["engine"],
            "ours": after["bytes_read"] - before["bytes_read"],
            "kernel": now["read"] - kernel["read"],
            "neighbors": after["neighbor_misses"],
            "scratch": after["scratch_written"],
            "written": now["write"] - opened["write"],
        }

    try:
        print(json.dumps([measure(options) for options in json.loads(sys.argv[4])]))
    except freshgo.errors.InvalidArgumentError as error:
        if "refused" not in str(error):
            raise
        skip(str(error))
"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows that begin with their number, so that what is read is seen to be right."""
    rng = np.random.default_rng(seed_of(0))
    x = np.zeros((NODES, WIDTH), np.float32)
    x[:, 0] = np.arange(NODES)
    path = tmp_path_factory.mktemp("io") / "wide.freshgo"
    graph = {"edge_index": rng.integers(NODES, size=(2, 10 * NODES)), "x": x}
    freshgo.convert(graph, path, memory="64MiB", progress=False).close()
    return path


@pytest.mark.parametrize("io", ["io_uring", "pread"])
def test_the_kernel_counts_the_same(wide: Path, io: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(wide.parent))
    told = json.loads(warm.run(MEASURE, wide, io, wide.parent, json.dumps(list(LOADERS.values()))))
    if isinstance(told, dict):
        pytest.skip(told["skip"])
    for name, loader in zip(LOADERS, told, strict=True):
        assert loader["engine"] == io
        assert loader["ours"] > 20 * LITTLE, (name, loader)
        assert loader["ours"] <= loader["kernel"] <= loader["ours"] + LITTLE, (name, loader)
        # Chunks that wait for a writer when the figures are taken are counted by one side only.
        assert abs(loader["written"] - loader["scratch"]) <= LITTLE, (name, loader)
    assert told[0]["neighbors"] > 0
    assert told[-1]["scratch"] > LITTLE
