"""What a store gives back whole is held once, without a second copy while it is read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from warm import run

from freshgo import convert, relayout

GROWTH = """
import json, sys
from pathlib import Path
import torch
from freshgo import Store

def status(name):
    return int(Path("/proc/self/status").read_text().split(name)[1].split()[0]) << 10

read = {"x": lambda s: s["x"], "links": lambda s: s.links("train")["edge_label_index"]}[sys.argv[2]]
with Store.open(sys.argv[1]) as store:
    store["small"]
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = status("VmRSS:")
    tensor = read(store)
    print(json.dumps([status("VmHWM:") - before, tensor.nbytes]))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nodes = 20_000
    data = {
        "x": torch.ones(nodes, 1000),
        "small": torch.zeros(nodes),
        "edge_index": torch.from_numpy(np.random.default_rng(1).integers(nodes, size=(2, 1000))),
        "edge_label_index": torch.randint(nodes, (2, 4_000_000)),
    }
    path = tmp_path_factory.mktemp("read") / "s"
    convert(data, path, progress=False).close()
    return path


@pytest.mark.parametrize("what", ["x", "links"])
def test_a_store_holds_nothing_beside_what_it_returns(path: Path, what: str) -> None:
    growth, size = json.loads(run(GROWTH, path, what))
    assert growth < size * (1 + (what == "links")) + (24 << 20)


def test_a_relaid_tensor(path: Path) -> None:
    relayout(path, path.parent / "relaid", order="community", progress=False).close()
    growth, size = json.loads(run(GROWTH, path.parent / "relaid", "x"))
    assert growth < size + (24 << 20)
