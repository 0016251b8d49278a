"""What a step launches and what its thread computes: three trimmed layers before and after accelerate().

    python bench/ops/launches.py [--rounds 400] [--operators]

A launch is an operator of PyTorch that computes, or a call into the library. Views and allocations are none, and an
operator that calls others is counted as these. The second table is the time of the training thread (its own clock,
one thread) for forward, loss and backward over tiny batches (4 seeds, [3, 2, 2]), where all but the host is nothing. PyG and
freshgo take turns over the same batches; each batch is new to both. Neither needs a device: on one, the launches are the
same but for what docs/device.md says.
"""

from __future__ import annotations

import argparse
import collections
import copy
import itertools
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch.profiler import ProfilerActivity, profile

from freshgo import Loader
from freshgo._native import abi
from freshgo.nn import accelerate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from results import record

Counts = collections.Counter[str]

MODELS: dict[str, Callable[[], Any]] = {
    "SAGE": lambda: pyg.GraphSAGE(16, 32, num_layers=3, out_channels=4),
    "GCN": lambda: pyg.GCN(16, 32, num_layers=3, out_channels=4),
    "GIN": lambda: pyg.GIN(16, 32, num_layers=3, out_channels=4),
    "GAT": lambda: pyg.GAT(16, 32, num_layers=3, out_channels=4, heads=4),
}

NOTHING = {
    "view",
    "t",
    "transpose",
    "slice",
    "select",
    "unsqueeze",
    "squeeze",
    "expand",
    "expand_as",
    "detach",
    "detach_",
    "as_strided",
    "as_strided_",
    "alias",
    "permute",
    "narrow",
    "reshape",
    "_unsafe_view",
    "unbind",
    "split",
    "view_as",
    "flatten",
    "resolve_conj",
    "resolve_neg",
    "to",
    "_to_copy",
    "contiguous",
    "result_type",
    "set_",
    "lift_fresh",
    "unfold",
    "dropout",
    "is_same_size",
    "empty",
    "empty_strided",
    "empty_like",
    "new_empty",
    "resize_",
}
"""Operators that launch nothing themselves: views, allocations, and what returns its argument."""


def data() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    return {
        "x": torch.randn(2000, 16, generator=generator),
        "y": torch.randint(4, (2000,), generator=generator),
        "edge_index": torch.randint(2000, (2, 20_000), generator=generator),
    }


def forward(model: Any, batch: Any) -> torch.Tensor:
    out = model(
        batch.x,
        batch.edge_index,
        num_sampled_nodes_per_hop=batch.num_sampled_nodes,
        num_sampled_edges_per_hop=batch.num_sampled_edges,
    )
    return F.cross_entropy(out[: batch.batch_size], batch.y[: batch.batch_size])


def launches(run: Callable[[], Any]) -> Counts:
    """How often each operator was launched, and each function of the library called."""
    found: Counts = collections.Counter()
    operate = abi.operate

    def counted(name: str, *args: Any) -> None:
        found[name] += name != "fg_result"
        operate(name, *args)

    abi.operate = counted
    try:
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            run()
    finally:
        abi.operate = operate

    def walk(event: Any) -> bool:
        below = [walk(child) for child in event.cpu_children]
        kind, _, name = event.name.partition("::")
        if any(below) or kind != "aten" or name in NOTHING:
            return any(below)
        found[event.name] += 1
        return True

    for event in seen.events():
        if event.cpu_parent is None:
            walk(event)
    return found


def counts(kind: str) -> dict[str, tuple[Counts, Counts]]:
    """The launches of forward and backward, of PyG's layers and of the accelerated ones."""
    torch.manual_seed(0)
    plain = MODELS[kind]()
    fast = copy.deepcopy(plain)
    accelerate(fast)
    found = {}
    for name, model in (("PyG", plain), ("freshgo", fast)):
        with Loader(data(), [5, 4, 3], torch.arange(120), batch_size=40, transpose=True) as loader:
            for batch in loader:  # the first ones prepare what is prepared once
                model.zero_grad(set_to_none=True)
                loss: list[torch.Tensor] = []
                there = launches(lambda m=model, b=batch, into=loss: into.append(forward(m, b)))
                found[name] = there, launches(loss[0].backward)
    return found


def batches(loader: Loader, rounds: int) -> Iterator[Any]:
    """New batches, made before they are handed out."""
    epochs = itertools.chain.from_iterable(loader for _ in itertools.count())
    for _ in range(rounds // 25 + 1):
        yield from list(itertools.islice(epochs, 25))


def thread_times(kind: str, rounds: int) -> dict[str, list[float]]:
    torch.manual_seed(0)
    models = {"PyG": MODELS[kind]()}
    models["freshgo"] = copy.deepcopy(models["PyG"])
    accelerate(models["freshgo"])
    seconds: dict[str, list[float]] = {name: [] for name in models}
    with Loader(data(), [3, 2, 2], torch.arange(2000), batch_size=4, transpose=True) as loader:
        for turn, batch in enumerate(batches(loader, rounds)):
            for name in sorted(models, reverse=turn % 2 == 0):
                models[name].zero_grad(set_to_none=True)
                start = time.thread_time()
                forward(models[name], batch).backward()
                if turn >= 25:
                    seconds[name].append(time.thread_time() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--operators", action="store_true", help="say which operators they are")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print("launches, forward + backward")
    for kind in MODELS:
        found = counts(kind)
        total = {name: [sum(each.values()) for each in both] for name, both in found.items()}
        for name, (there, back) in total.items():
            record("ops/launches", kind, name, [there + back], "launches")
        (a, b), (c, d) = total["freshgo"], total["PyG"]
        print(f"  {kind:5} freshgo {a} + {b}, PyG {c} + {d}: {(a + b) / (c + d):.2f}", flush=True)
        if args.operators:
            for name, both in found.items():
                for way, each in zip(("forward", "backward"), both, strict=True):
                    print(f"    {name}, {way}: " + ", ".join(f"{n} {key}" for key, n in sorted(each.items())))
    print("ms of the thread, tiny batches")
    for kind in MODELS:
        seconds = thread_times(kind, args.rounds)
        for name, each in seconds.items():
            record("ops/thread", kind, name, each)
        ratio = statistics.median(a / b for a, b in zip(seconds["freshgo"], seconds["PyG"], strict=True))
        took = {name: statistics.median(each) * 1e3 for name, each in seconds.items()}
        print(f"  {kind:5} freshgo {took['freshgo']:.2f}, PyG {took['PyG']:.2f}: {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
