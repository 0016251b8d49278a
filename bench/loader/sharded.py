"""Two hosts with half of the features each (features="sharded"), as network namespaces with a link of a given rate.

    python bench/loader/sharded.py [--nodes 100000] [--gbit 10] [--rounds 3] [--io buffered] [--directory DIR]

It needs root, ip and tc. Half of the rows are remote, and a tenth stays in memory. Printed are the seconds of an epoch
after the first, the bytes that a host receives, the seconds that the link needs for them, and the ratio: medians of the
rounds, of each way of exchange, which alternate. Both hosts share the processors and the disk of this machine; with
--io buffered rows come from the page cache. Every batch's rows are compared with the features.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from freshgo import Loader, convert, shard

WIDTH, BATCH, FANOUTS, HOSTS = 128, 1024, [10, 5], 2
WAYS = ("all_to_all", "rounds")


def generated(num_nodes: int) -> dict[str, object]:
    """A graph whose nodes are drawn with different frequencies."""
    rng = np.random.default_rng(0)
    source = (num_nodes * rng.random(num_nodes * 15) ** 1.5).astype(np.int64)
    source = rng.permutation(num_nodes)[source]  # so that neither half is the hot one
    x = np.arange(num_nodes, dtype=np.float32)[:, None] + np.zeros((1, WIDTH), np.float32)
    return {"edge_index": np.stack([source, rng.integers(num_nodes, size=source.size)]), "x": x, "num_nodes": num_nodes}


def rank_of(rank: int, port: int, path: str, hot: int, seeds: int, way: str, io: str) -> None:
    """One host: an epoch that fills what stays in memory, and one that is measured."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://10.78.0.1:{port}", rank=rank, world_size=HOSTS)
    num_nodes = int(json.loads((Path(path) / "parts.json").read_text())["nodes"][0]["bounds"][-1])
    options = {"batch_size": BATCH, "shuffle": True, "memory": "1GiB", "num_workers": 1, "uneven": "drop", "io": io}
    ids = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(0))[:seeds]
    with Loader(path, FANOUTS, ids, features="sharded", exchange=way, feature_cache=hot, **options) as loader:
        for epoch in range(2):
            if epoch == 1:
                dist.barrier()
                before, began = loader.stats()["sharded"], time.monotonic()
            for batch in loader:
                if epoch == 0:
                    assert torch.equal(batch.x[:, 0].long(), batch.n_id)
        dist.barrier()
        seconds, after = time.monotonic() - began, loader.stats()["sharded"]
        print(
            json.dumps(
                {
                    "seconds": seconds,
                    "bytes": after["bytes_received"] - before["bytes_received"],
                    "exchanging": after["seconds_exchanging"] - before["seconds_exchanging"],
                    "remote": after["rows_remote"] - before["rows_remote"],
                    "hot": after["hot_rows"],
                }
            )
        )
        dist.barrier()


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def linked(names: list[str], gbit: float) -> None:
    """Make two namespaces with a link of this rate in each direction."""
    for name in names:
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "set", "lo", "up")
    run("ip", "-n", names[0], "link", "add", "eth", "type", "veth", "peer", "name", "eth", "netns", names[1])
    for i, name in enumerate(names):
        run("ip", "-n", name, "addr", "add", f"10.78.0.{i + 1}/24", "dev", "eth")
        run("ip", "-n", name, "link", "set", "eth", "up")
        shape = ("rate", f"{gbit}gbit", "burst", "2mb", "latency", "50ms")
        run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth", "root", "tbf", *shape)


def measured(
    names: list[str], port: int, path: Path, hot: int, seeds: int, way: str, io: str
) -> list[dict[str, float]]:
    arguments = [str(port), str(path), str(hot), str(seeds), way, io]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "eth"}
    hosts = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, __file__, "--rank", str(rank), *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank, name in enumerate(names)
    ]
    said = [host.communicate()[0] for host in hosts]
    if any(host.returncode for host in hosts):
        raise SystemExit("a host has failed")
    return [json.loads(one) for one in said]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=40_000)
    parser.add_argument("--gbit", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--io", default="buffered")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    args = parser.parse_args()
    names = [f"fgbench{os.getpid()}{i}" for i in range(HOSTS)]
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        store, parts = Path(directory) / "graph", Path(directory) / "parts"
        convert(generated(args.nodes), store, progress=False).close()
        shard(store, parts, parts=HOSTS, progress=False)
        with Loader(store, FANOUTS, batch_size=BATCH, memory="512MiB") as loader:
            rows = next(iter(loader)).num_nodes
        hot = 8 * rows * WIDTH * 4 + args.nodes // 10 * (WIDTH * 4 + 8)
        found: dict[str, list[list[dict[str, float]]]] = {way: [] for way in WAYS}
        try:
            linked(names, args.gbit)
            for turn in range(args.rounds):
                for i, way in enumerate(WAYS):
                    port = 29800 + 2 * turn + i
                    found[way].append(measured(names, port, parts, hot, args.seeds, way, args.io))
        finally:
            for name in names:
                subprocess.run(["ip", "netns", "del", name], capture_output=True)
    for way, turns in found.items():
        epochs = [max(host["seconds"] for host in hosts) for hosts in turns]
        links = [max(host["bytes"] for host in hosts) / (args.gbit * 1e9 / 8) for hosts in turns]
        exchanging = statistics.median(max(host["exchanging"] for host in hosts) for hosts in turns)
        ratio = statistics.median(epoch / link for epoch, link in zip(epochs, links, strict=True))
        host = turns[0][0]
        print(
            f"{way}: epoch {statistics.median(epochs):.3f} s, of it {exchanging:.3f} s handing over; "
            f"{host['bytes'] / 1e6:.1f} MB for {host['remote']:.0f} remote rows, {host['hot']:.0f} in memory; "
            f"the link needs {statistics.median(links):.3f} s; ratio {ratio:.2f}"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank_of(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), int(sys.argv[6]), *sys.argv[7:9])
    else:
        main()
