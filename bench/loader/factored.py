"""Executors whose roles are chosen by measured times (roles="auto") against every fixed division of them.

    python bench/loader/factored.py [--executors 2] [--rounds 3] [--only sampling|training] [--directory DIR]

A model that waits for its batches and one that does not. The candidates take turns; each turn starts its executors,
trains an epoch that does not count, in which the roles are chosen, and then epochs of which the shortest is taken. The
losses of all candidates must be the same to the bit. Printed are medians over the rounds, and auto against the best
fixed roles, in seconds and in those of processors: beside other work the latter are what can be compared. Roles that
leave a core idle take fewer of them and are slower all the same.
"""

import argparse
import itertools
import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from freshgo import Loader, convert, factored

WIDTH, CLASSES, EPOCHS = 64, 8, 2


class Sage(torch.nn.Module):
    """A mean of neighbours under layers of some width."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        widths = [WIDTH, *[width] * layers]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.last = torch.nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, targets: int) -> torch.Tensor:
        source, target = edge_index
        kept = target < targets
        mean = torch.zeros(targets, x.size(1)).index_add(0, target[kept], x[source[kept]])
        h = x[:targets] + mean
        for layer in self.layers:
            h = layer(h).relu()
        return self.last(h)


def step(model: Sage, batch) -> torch.Tensor:
    out = model(batch.x, batch.edge_index, batch.batch_size)
    return F.cross_entropy(out, batch.n_id[: batch.batch_size] % CLASSES)


def generated(num_nodes: int) -> dict[str, object]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_nodes, WIDTH), dtype=np.float32)
    return {"edge_index": rng.integers(num_nodes, size=(2, 15 * num_nodes)), "x": x, "num_nodes": num_nodes}


CASES = {
    "sampling": {"fanouts": [15, 10, 5], "seeds": 4_000, "batch": 100, "width": 32, "layers": 1},
    "training": {"fanouts": [5], "seeds": 10_000, "batch": 500, "width": 256, "layers": 6},
}


def processor_seconds() -> float:
    """Of this process and its executors."""
    running = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
    of_each = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in running)
    return sum(int(user) + int(system) for user, system in of_each) / os.sysconf("SC_CLK_TCK")


def measured(path: Path, case: dict, executors: int, roles, switching: bool) -> tuple[float, float, list[float], dict]:
    """Seconds of an epoch and those of processors, the losses and the figures."""
    torch.manual_seed(0)
    model = Sage(case["width"], case["layers"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    times, used, losses = [], [], []

    def after_epoch(training: factored.Training) -> None:
        times.append(time.monotonic())
        used.append(processor_seconds())
        losses.extend(training.losses)

    options = {"batch_size": case["batch"], "shuffle": True, "memory": "256MiB"}
    with Loader(path, case["fanouts"], torch.arange(case["seeds"]), **options) as loader:
        training = factored.train(
            step,
            loader,
            model,
            optimizer,
            executors=executors,
            roles=roles,
            switching=switching,
            epochs=1 + EPOCHS,
            after_epoch=after_epoch,
        )
    return min(np.diff(times)), statistics.mean(np.diff(used)), losses, training.stats()


def candidates(count: int) -> dict:
    """Roles and whether samplers stand in, by name: chosen by measured times, and every fixed division."""
    found = {"auto": ("auto", True)}
    for samplers in range(1, count + 1):
        roles = {"samplers": samplers, "trainers": count - samplers}
        found[f"{samplers} of {count} sample"] = (roles, True)
        if samplers < count:
            found[f"{samplers} of {count} sample, without switching"] = (roles, False)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--executors", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=list(CASES))
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    args = parser.parse_args()
    path = args.directory / f"factored-{args.nodes}.freshgo"
    convert(generated(args.nodes), path, overwrite=True, progress=False).close()
    count = args.executors
    chosen_roles = candidates(count)
    for name, case in CASES.items():
        if args.only not in (None, name):
            continue
        seconds: dict[str, list[float]] = {candidate: [] for candidate in chosen_roles}
        used: dict[str, list[float]] = {candidate: [] for candidate in chosen_roles}
        expected = None
        for turn in range(args.rounds):
            for candidate, (roles, switching) in chosen_roles.items():
                took, processors, losses, stats = measured(path, case, count, roles, switching)
                assert expected in (None, losses), "other roles, other losses"
                expected = losses
                seconds[candidate].append(took)
                used[candidate].append(processors)
                print(f"{name}, round {turn}: {candidate}: {took:.3f} s, processors {processors:.2f} s", flush=True)
                if candidate == "auto":
                    chosen = stats
        medians = {candidate: statistics.median(found) for candidate, found in seconds.items()}
        for candidate, median in medians.items():
            found = seconds[candidate]
            print(
                f"{name}: {candidate}: {median:.3f} s an epoch ({min(found):.3f} to {max(found):.3f}), "
                f"processors {statistics.median(used[candidate]):.2f} s"
            )
        best = min((candidate for candidate in medians if candidate != "auto"), key=medians.__getitem__)
        processors = statistics.median(a / b for a, b in zip(used["auto"], used[best], strict=True))
        print(
            f"{name}: auto chose {chosen['samplers']} of {count} to sample, K = {chosen['ratio']:.3g}, "
            f"{chosen['switches']} switches; auto / {best} = {medians['auto'] / medians[best]:.2f} (goal 1.10), "
            f"of processors {processors:.2f}"
        )


if __name__ == "__main__":
    main()
