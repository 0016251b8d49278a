"""Stores, states and batches of an earlier version are read and delivered as before."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from written_before import CASES, RESUMED, STORES, PrunedRun, digest, digests, plain, resumed, several, source

import freshgo

pytest.importorskip("torch_geometric")

FOLDER = Path(__file__).parent / "written_before"
RECORDED = json.loads((FOLDER / "recorded.json").read_text())


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    with tarfile.open(FOLDER / "stores.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("case", CASES)
def test_batches_in_memory(case: str) -> None:
    assert digests(case, source(case)) == RECORDED["batches"][case]


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("one type")])
def test_batches_of_a_store(case: str, stores: Path) -> None:
    assert digests(case, str(stores / case.partition(",")[0])) == RECORDED["batches"][case]


@pytest.mark.parametrize("name", STORES)
def test_stores(name: str, stores: Path) -> None:
    given: dict[Any, Any] = several() if name == "several" else {None: plain()}
    with freshgo.Store.open(stores / name) as store:
        store.verify(progress=False)
        for kind, tensors in given.items():
            part = store if kind is None else store[kind]
            for key in set(tensors) - {"num_nodes", "edge_index"}:
                if not key.endswith("_mask"):
                    np.testing.assert_array_equal(part[key].numpy(), tensors[key])
            if "train_mask" in tensors:
                np.testing.assert_array_equal(part.split("train").numpy(), np.flatnonzero(tensors["train_mask"]))


@pytest.mark.parametrize("name", RESUMED)
def test_states_of_loaders(name: str, stores: Path) -> None:
    was = RECORDED["states"][name]
    with resumed(name, stores) as loader:
        loader.load_state_dict(was["state"])
        assert [digest(batch) for batch in loader] == was["batches"]


def test_state_of_a_history() -> None:
    run = PrunedRun()
    assert list(run.batches(12)) == RECORDED["history"]["before"]
    assert run.history.stats()["rows_saved"] > 0

    run = PrunedRun()
    state = torch.load(FOLDER / "history.pt", weights_only=True)
    run.loader.load_state_dict(state["loader"])
    run.history.load_state_dict(state["history"])
    assert list(run.batches(12)) == RECORDED["history"]["after"]
