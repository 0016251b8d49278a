"""GraphSAGE in several processes, out of core: DistributedDataParallel under torchrun, on a graph that is generated.

    torchrun --nproc-per-node 2 examples/ddp.py [--epochs 5] [--memory 256MiB] [--share | --sharded] [--state FILE]

Without torchrun it is the same training in one process. Nothing in it names a rank to the loader, which takes it from
torch.distributed. With --state, rank 0 writes FILE after every tenth step, and a run that finds FILE goes on from it,
with the identical next batches and with any number of processes: also after torchrun --max-restarts has restarted them.
"""

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GraphSAGE

from freshgo import Loader, MemoryBudget, Ranks, convert, distributed, shard

CLASSES = 8


def generated(num_nodes: int) -> dict[str, object]:
    """A graph whose edges mostly join nodes of one class, with features that say little of it."""
    rng = np.random.default_rng(0)
    y = rng.integers(CLASSES, size=num_nodes)
    members = np.argsort(y, kind="stable")
    starts = np.searchsorted(y[members], np.arange(CLASSES + 1))
    target = rng.integers(num_nodes, size=num_nodes * 12)
    of_class = starts[y[target]] + rng.integers(1 << 40, size=target.size) % np.diff(starts)[y[target]]
    anywhere = rng.integers(num_nodes, size=target.size)
    source = np.where(rng.random(target.size) < 0.7, members[of_class], anywhere)
    x = rng.standard_normal((num_nodes, 64), dtype=np.float32) + 0.5 * np.eye(CLASSES, 64, dtype=np.float32)[y]
    train, test = np.split(rng.permutation(num_nodes), [num_nodes * 8 // 10])
    return {"edge_index": np.stack([source, target]), "x": x, "y": y, "splits": {"train": train, "test": test}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--memory", default="256MiB", help="of each process; with --share, --sharded of each loader")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--share", action="store_true", help="one process makes the batches of all on this host")
    how.add_argument("--sharded", action="store_true", help="each process has half of the features")
    parser.add_argument("--state", type=Path)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    args = parser.parse_args()

    if "RANK" in os.environ:  # torchrun has started this process
        dist.init_process_group("gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    path = args.directory / f"ddp-{args.nodes}.freshgo"
    if rank == 0 and not path.exists():
        convert(generated(args.nodes), path, progress=False).close()
    parts = args.directory / f"ddp-{args.nodes}-parts"
    if rank == 0 and args.sharded and not parts.exists():
        shard(path, parts, parts=2, progress=False)
    if dist.is_initialized():
        dist.barrier()

    if args.share:
        options = {"ranks": Ranks(share="host"), "memory": args.memory}
    elif args.sharded:
        path, options = parts, {"ranks": Ranks(features="sharded"), "memory": args.memory}
    else:
        options = {"memory": MemoryBudget(args.memory)}  # of both loaders: the one that runs has it
    train = Loader(path, [10, 5], "train", batch_size=256, shuffle=True, **options)
    test = Loader(path, [10, 5], "test", batch_size=1024, **options)

    torch.manual_seed(0)
    model = GraphSAGE(64, 64, num_layers=2, out_channels=CLASSES)
    replica = DistributedDataParallel(model) if dist.is_initialized() else model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    if args.state is not None and args.state.exists():
        saved = torch.load(args.state, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        train.load_state_dict(saved["loader"])

    def save() -> None:
        if args.state is not None and rank == 0:
            states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": train.state_dict()}
            torch.save(states, args.state.with_suffix(".new"))
            args.state.with_suffix(".new").replace(args.state)  # whole, or not at all

    def guesses(batch: object) -> dict[str, object]:
        right = model(batch.x, batch.edge_index)[: batch.batch_size].argmax(1) == batch.y[: batch.batch_size]
        return {"right": right.sum(), "seeds": batch.batch_size}

    while (epoch := train.state_dict()["epoch"]) < args.epochs:
        model.train()
        for step, batch in enumerate(train):
            optimizer.zero_grad()
            out = replica(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            if step % 10 == 9:
                save()
        save()
        model.eval()
        sums = distributed.evaluate(guesses, test)  # every seed of all processes, once
        if rank == 0:
            right, seeds = int(sums["right"]), int(sums["seeds"])
            print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {right / seeds:.2%} of {seeds} seeds", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
