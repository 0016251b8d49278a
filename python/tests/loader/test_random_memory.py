"""Random loaders, of nodes and of links, keep to their memory: what is resident, over the opening and two epochs."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from seeds import seed
from warm import run

from freshgo import convert

CASES = int(os.environ.get("FRESHGO_TEST_MEMORY_CASES", "8"))
"""``make memory`` tries more."""

RUN = """
import itertools, json, random, sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
import torch
from freshgo import LinkLoader, Loader, errors

def status(name):
    return int(Path("/proc/self/status").read_text().split(name)[1].split()[0]) << 10

stores, rng = sys.argv[1:3], random.Random(int(sys.argv[3]))
for store in stores:
    with Loader(store, [2], range(100), batch_size=10, memory="48MiB") as loader:  # imports what a batch needs
        list(loader)
left = int(sys.argv[4])
for case in itertools.count():
    memory = int(2 ** rng.uniform(23, 27))
    options = {
        "num_neighbors": [rng.choice([-1, 1, 5, 20, 200]) for _ in range(rng.randint(1, 3))],
        "batch_size": rng.choice([1, 30, 500, 20_000]),
        "shuffle": rng.random() < 0.7,
        "replace": rng.random() < 0.3,
        "cache": rng.choice(["auto", "belady", "degree", "lru", None]),
        "prefetch": rng.choice([0, 1, 4, 100]),
        "num_workers": rng.choice([0, 1, 3, 50]),
        "transpose": rng.random() < 0.2,
        "return_edge_id": case % 2 == 0,
        "seed": case,
    }
    if rng.random() < 0.2:
        options |= {"neighbor_sampler": "labor", "replace": False}
    if rng.random() < 0.2:
        options["disjoint"] = "neighbor_sampler" not in options
    for name, value in (
        ("pad", True), ("subgraph_type", "induced"), ("subgraph_type", "bidirectional"), ("weight_attr", "weight"),
        ("time_attr", "time"), ("time_attr", "year"),
    ):
        if rng.random() < 0.1:
            options[name] = value
    kind, inputs = Loader, {"input_nodes": range(3000)}
    if rng.random() < 0.3:
        kind, inputs = LinkLoader, {"neg_sampling": rng.choice([None, "binary", "triplet"])}
        inputs["strict_negatives"] = inputs["neg_sampling"] is not None and rng.random() < 0.7
        if "time_attr" in options or rng.random() < 0.5:
            inputs["edge_label_index"] = torch.arange(6000).view(2, 3000)
    if "time_attr" in options:
        times = "edge_label_time" if kind is LinkLoader else "input_time"
        inputs[times] = torch.full((3000,), 700)
    data = rng.choice(stores)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before, outcome = status("VmRSS:"), "made"
    try:
        with kind(data, memory=memory, **inputs, **options) as loader:
            for _ in range(2):
                for i, batch in enumerate(loader):
                    del batch
                    if i == 20:
                        break
    except errors.BudgetError as error:
        outcome = str(error)
    except errors.InvalidArgumentError:  # the options exclude each other
        continue
    growth = status("VmHWM:") - before
    print(json.dumps([growth, memory, outcome, f"{kind.__name__} {data} {list(inputs)} {options}"]), flush=True)
    left -= 1
    if left == 0:
        break
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    rng = np.random.default_rng(5)
    paths = []
    for nodes, edges, columns in ((30_000, 600_000, 64), (300_000, 500_000, 16)):
        skewed = (rng.random(edges) ** 3 * nodes).astype(np.int64)
        x = np.zeros((nodes, columns), np.float32)
        graph = {"edge_index": np.stack([skewed, rng.integers(nodes, size=edges)]), "x": x}
        graph["weight"] = rng.random(edges, dtype=np.float32)
        graph |= {"time": rng.integers(1000, size=edges), "year": rng.integers(1000, size=nodes)}
        paths.append(str(tmp_path_factory.mktemp("random") / "graph"))
        convert(graph, paths[-1], weight_attr="weight", progress=False).close()
    return paths


def test_loaders_keep_to_their_memory(stores: list[str]) -> None:
    out = run(RUN, *stores, seed(11), CASES, timeout=60 + 20 * CASES)
    results = [json.loads(line) for line in out.splitlines()]
    assert len(results) == CASES
    assert any(outcome == "made" for _, _, outcome, _ in results)
    for growth, memory, outcome, options in results:
        assert growth <= memory + (64 << 20), f"{growth >> 20} MiB with {memory >> 20} MiB ({outcome}): {options}"
