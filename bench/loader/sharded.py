"""Two hosts with half of the features each (features="sharded"), as network namespaces with a link of a given rate.

    python bench/loader/sharded.py [--nodes 100000] [--gbit 10] [--rounds 3] [--io buffered] [--directory DIR]
    python bench/loader/sharded.py --count [--nodes 100000]

It needs root, ip and tc. Half of the rows are remote, and a tenth stays in memory. Printed are the seconds of an epoch
after the first, the bytes that a host receives, the seconds that the link needs for them, and the ratio: medians of the
rounds, of each way of exchange, which alternate. Both hosts share the processors and the disk of this machine; with
--io buffered rows come from the page cache. Every batch's rows are compared with the features.

Two more kinds of epochs say what bounds it: "whole" reads all rows itself on both hosts, and "alone" exchanges as many
bytes in as many turns, and does nothing else. Together they take the processors for at least so long as an epoch takes
at best, since both hosts have the processors of one machine: the epochs are compared with that limit too.

With --count it counts, without a network, the rows that a host would read of its part with a planned cache in place of
its share of the hottest rows: of its own batches, and of what the other host asks for.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

from freshgo import Belady, Disk, Loader, Ranks, convert, shard
from freshgo.lab import hotness, simulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import skewed

WIDTH, BATCH, FANOUTS, HOSTS = 128, 1024, [10, 5], 2
WAYS = ("all_to_all", "rounds")
KINDS = (*WAYS, "whole", "alone")


def generated(num_nodes: int) -> dict[str, object]:
    """A graph whose nodes are drawn with different frequencies."""
    generator = torch.Generator().manual_seed(0)
    edge_index = skewed.edges(num_nodes, num_nodes * 15, generator, power=1.5)
    edge_index[0] = torch.randperm(num_nodes, generator=generator)[edge_index[0]]  # so that neither half is the hot one
    x = torch.arange(num_nodes, dtype=torch.float32).unsqueeze(1).repeat(1, WIDTH)
    return {"edge_index": edge_index, "x": x, "num_nodes": num_nodes}


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def alone(n_bytes: int, turns: int) -> None:
    """Exchange as many bytes in as many turns, and say what it took."""
    sent, came = (torch.ones(n_bytes // turns, dtype=torch.uint8) for _ in range(2))
    to_other = [0, sent.numel()] if dist.get_rank() == 0 else [sent.numel(), 0]
    for turn in range(turns + 2):
        if turn == 2:
            dist.barrier()
            began, used = time.monotonic(), processor_seconds()
        dist.all_to_all_single(came, sent, to_other, to_other)
    dist.barrier()
    seconds, used = time.monotonic() - began, processor_seconds() - used
    said = {"seconds": seconds, "exchanging": seconds, "processors": used, "bytes": n_bytes, "turns": turns}
    print(json.dumps({**said, "remote": 0, "hot": 0}))
    dist.barrier()


def rank_of(rank: int, port: int, path: str, hot: int, seeds: int, way: str, io: str, n_bytes: int, turns: int) -> None:
    """One host: an epoch that fills what stays in memory, and one that is measured."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://10.78.0.1:{port}", rank=rank, world_size=HOSTS)
    if way == "alone":
        alone(n_bytes, turns)
        return
    num_nodes = int(json.loads((Path(path) / "parts.json").read_text())["nodes"][0]["bounds"][-1])
    options = {"batch_size": BATCH, "shuffle": True, "memory": "1GiB", "num_workers": 1, "disk": Disk(io=io)}
    ids = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(0))[:seeds]
    if way == "whole":
        path, sharded = str(Path(path).parent / "graph"), {"cache": "none", "ranks": Ranks(uneven="drop")}
    else:
        ranks = Ranks(features="sharded", exchange=way, uneven="drop")
        sharded = {"ranks": ranks, "feature_cache": hot}
    with Loader(path, FANOUTS, ids, **sharded, **options) as loader:
        for epoch in range(2):
            if epoch == 1:
                dist.barrier()
                before, began, used = figures(loader), time.monotonic(), processor_seconds()
            for batch in loader:
                if epoch == 0:
                    assert torch.equal(batch.x[:, 0].long(), batch.n_id)
        dist.barrier()
        seconds, after, used = time.monotonic() - began, figures(loader), processor_seconds() - used
        print(
            json.dumps(
                {
                    "seconds": seconds,
                    "processors": used,
                    "turns": after["turns"] - before["turns"],
                    "bytes": after["bytes_received"] - before["bytes_received"],
                    "exchanging": after["seconds_exchanging"] - before["seconds_exchanging"],
                    "remote": after["rows_remote"] - before["rows_remote"],
                    "hot": after["hot_rows"],
                }
            )
        )
        dist.barrier()


def figures(loader: Loader) -> dict[str, float]:
    nothing = dict.fromkeys(("bytes_received", "seconds_exchanging", "rows_remote", "hot_rows", "turns"), 0)
    return {**nothing, **loader.stats().get("sharded", {})}


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
    names: list[str], port: int, path: Path, hot: int, seeds: int, way: str, io: str, exchanged: tuple[int, int]
) -> list[dict[str, float]]:
    arguments = [str(port), str(path), str(hot), str(seeds), way, io, *map(str, exchanged)]
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


def count(store: Path, num_nodes: int, seeds: int) -> None:
    """Rows that the first host reads of its half of the nodes in an epoch."""
    ids = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(0))[:seeds]
    options = {"batch_size": BATCH, "shuffle": True}
    with Loader(store, FANOUTS, ids, memory="512MiB", **options) as loader:
        batches = [n_id[n_id < num_nodes // 2] for n_id in loader.trace(1)]
    hot = hotness(store, num_neighbors=FANOUTS, input_nodes=ids, **options).topk(num_nodes // 10).indices
    room = int((hot < num_nodes // 2).sum())
    asked = [
        torch.unique(torch.cat([own, other[~torch.isin(other, hot)]]))  # what the other host holds it does not ask for
        for own, other in zip(batches[0::2], batches[1::2], strict=False)
    ]
    hottest = sum(int((~torch.isin(one, hot)).sum()) for one in asked)
    print(f"{sum(map(len, asked))} rows are wanted of a part, and {room} fit into memory: {hottest} are read")
    for window in (len(asked), 8):
        planned = simulate(asked, policy=Belady(window), capacity=room, num_nodes=num_nodes)
        share = planned.reads / hottest
        print(f"planned over {window} batches at a time: {planned.reads} are read, {share:.2f} of that")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=40_000)
    parser.add_argument("--gbit", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--io", default="buffered")
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    args = parser.parse_args()
    names = [f"fgbench{os.getpid()}{i}" for i in range(HOSTS)]
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        store, parts = Path(directory) / "graph", Path(directory) / "parts"
        convert(generated(args.nodes), store, progress=False).close()
        if args.count:
            count(store, args.nodes, args.seeds)
            return
        shard(store, parts, parts=HOSTS, progress=False)
        with Loader(store, FANOUTS, batch_size=BATCH, memory="512MiB") as loader:
            rows = next(iter(loader)).num_nodes
        hot = 8 * rows * WIDTH * 4 + args.nodes // 10 * (WIDTH * 4 + 8)
        found: dict[str, list[list[dict[str, float]]]] = {kind: [] for kind in KINDS}
        exchanged = 0, 1
        try:
            linked(names, args.gbit)
            for turn in range(args.rounds):
                for i, kind in enumerate(KINDS):
                    port = 29800 + len(KINDS) * turn + i
                    hosts = measured(names, port, parts, hot, args.seeds, kind, args.io, exchanged)
                    found[kind].append(hosts)
                    if kind == WAYS[0]:
                        exchanged = max(int(host["bytes"]) for host in hosts), max(int(host["turns"]) for host in hosts)
        finally:
            for name in names:
                subprocess.run(["ip", "netns", "del", name], capture_output=True)
    of_processors = {
        kind: statistics.median(sum(host["processors"] for host in hosts) for hosts in turns)
        for kind, turns in found.items()
    }
    cores = len(os.sched_getaffinity(0))
    limit = (of_processors["whole"] + of_processors["alone"]) / cores
    print(f"{cores} processors need {limit:.3f} s for what is made (whole) and exchanged (alone)")
    for way, turns in found.items():
        epochs = [max(host["seconds"] for host in hosts) for hosts in turns]
        used = of_processors[way]
        if way == "whole":
            print(f"whole: epoch {statistics.median(epochs):.3f} s, {used:.3f} s of processors")
            continue
        links = [max(host["bytes"] for host in hosts) / (args.gbit * 1e9 / 8) for hosts in turns]
        exchanging = statistics.median(max(host["exchanging"] for host in hosts) for hosts in turns)
        ratio = statistics.median(epoch / link for epoch, link in zip(epochs, links, strict=True))
        host = turns[0][0]
        print(
            f"{way}: epoch {statistics.median(epochs):.3f} s, of it {exchanging:.3f} s handing over; "
            f"{host['bytes'] / 1e6:.1f} MB for {host['remote']:.0f} remote rows, {host['hot']:.0f} in memory; "
            f"the link needs {statistics.median(links):.3f} s; ratio {ratio:.2f}; {used:.3f} s of processors, "
            f"{used / cores / limit:.2f} times the least; epoch / least {statistics.median(epochs) / limit:.2f}"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank, port, path, hot, seeds, way, io, n_bytes, turns = sys.argv[2:]
        rank_of(int(rank), int(port), path, int(hot), int(seeds), way, io, int(n_bytes), int(turns))
    else:
        main()
