"""Ranks with a device each, whose process group takes no tensors of the host: NCCL's, or on the emulator gloo's for
devices alone."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import machines
import pytest
import torch
from graphs import random_graph

from freshgo import convert, shard

RANK = """
    import pathlib, sys, torch
    import torch.distributed as dist
    sys.path[:0] = {paths!r}
    import machines
    from test_gpu_loader import same
    from freshgo import Loader, Ranks, distributed
    rank, machine = int(sys.argv[1]), machines.find(pathlib.Path({folder!r}))
    mine = torch.device("cuda", rank) if machine.real else machine.device
    backend = "nccl" if machine.real else "cuda:gloo"
    dist.init_process_group(backend, init_method="file://" + {folder!r} + "/meet", rank=rank, world_size=2)
    given = dict(num_neighbors=[4, 3], batch_size=300, shuffle=True, memory="64MiB")
    alone = Ranks(rank=rank, world_size=2, uneven="join")
    with machine.loading() as device:
        device = f"cuda:{{rank}}" if machine.real else device
        for store, ranks, options, on_device in (
            ({whole!r}, Ranks(uneven="join"), dict(transpose=True), dict(device_cache="20kB")),
            ({whole!r}, Ranks(uneven="join", share="host"), dict(transpose=True), {{}}),
            ({whole!r}, Ranks(uneven="join", share="host"), dict(prefetch=0, pad=True), {{}}),
            ({parts!r}, Ranks(uneven="join", features="sharded", exchange="rounds"), dict(transpose=True), {{}}),
            ({parts!r}, Ranks(uneven="join", features="sharded", exchange="all_to_all"), dict(prefetch=0), {{}}),
        ):
            with (
                Loader({whole!r}, **given, **options, ranks=alone) as plain,
                Loader(store, **given, **options, ranks=ranks, device=device, **on_device) as moved,
            ):
                for _ in range(2):
                    for want, got in zip(plain, moved, strict=True):
                        assert got.x.device == got.edge_index.device == mine
                        same(want, got)
        with Loader({whole!r}, **given, device=device) as loader:
            sums = distributed.evaluate(lambda batch: dict(seeds=batch.batch_size), loader)
        assert sums == dict(seeds={nodes}), sums
    dist.destroy_process_group()
"""


def test_ranks_on_devices(machine: Any, tmp_path: Path) -> None:
    """Ranks get the batches of the host, whether each loads, one process loads for both, or rows are divided. No rank
    chooses a current device."""
    if machine.real and torch.cuda.device_count() < 2:
        pytest.skip("needs a GPU more")
    whole, parts = str(tmp_path / "whole"), str(tmp_path / "parts")
    data = random_graph()
    convert(data, whole, progress=False).close()
    shard(whole, parts, parts=2, progress=False)
    tests = Path(__file__).parents[1]
    paths = [str(tests / "gpu"), str(tests / "oracles")]
    script = textwrap.dedent(RANK).format(
        paths=paths, folder=str(tmp_path), whole=whole, parts=parts, nodes=int(data["num_nodes"])
    )
    environment = {**os.environ, "LOCAL_WORLD_SIZE": "2"}
    if not machine.real:
        environment["FRESHGO_EMULATED_DRIVER"] = str(machines.emulated_driver(tmp_path))
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(rank)], env=environment, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    said = [process.communicate(timeout=240)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
