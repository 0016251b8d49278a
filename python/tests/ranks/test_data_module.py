"""Lightning's data module in one process: which loaders it opens, with what, and what it refuses."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from seeds import seed

from freshgo import LinkLoader, MemoryBudget, convert, errors

pytest.importorskip("lightning")
from freshgo.lightning import DataModule


def graph() -> dict[str, Any]:
    rng = np.random.default_rng(seed(3))
    return {
        "edge_index": rng.integers(90, size=(2, 500)),
        "x": rng.random((90, 4), dtype=np.float32),
        "splits": {"some": np.arange(40), "rest": np.arange(40, 90)},
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("module") / "graph"
    convert(graph(), path, progress=False).close()
    return path


def test_every_stage_has_its_loader(path: Path) -> None:
    inputs = {"train": "some", "val": "rest", "predict": None}
    data = DataModule(path, [3], inputs, batch_size=8, per_stage={"val": {"batch_size": 16}}, memory="24MiB")
    assert data.test_dataloader is None
    ids = {}
    for stage in inputs:
        loader = getattr(data, f"{stage}_dataloader")()
        assert loader is data.loader(stage)
        ids[stage] = [batch.n_id[: batch.batch_size].tolist() for batch in loader]
        assert len(ids[stage][0]) == (16 if stage == "val" else 8)
    flat = {stage: [node for batch in of for node in batch] for stage, of in ids.items()}
    assert sorted(flat["train"]) == list(range(40)) != flat["train"]
    assert flat["val"] == list(range(40, 90))
    assert flat["predict"] == list(range(90))
    assert sum(data.loader(stage).stats()["memory_used"] for stage in inputs) <= 24 << 20  # one budget
    again = pickle.loads(pickle.dumps(DataModule(path, [3], inputs, batch_size=8, seed=0)))
    assert [batch.n_id[: batch.batch_size].tolist() for batch in again.train_dataloader()] == ids["train"]
    again.close()
    data.close()
    assert data.loader("train").state_dict()["epoch"] == 0
    data.close()


def test_links_and_graphs_in_memory() -> None:
    links = torch.arange(20).view(2, 10)
    data = DataModule(graph(), [3], {"train": links}, loader=LinkLoader, batch_size=5, neg_sampling="binary")
    assert [batch.edge_label_index.shape for batch in data.train_dataloader()] == [(2, 10)] * 2
    weighted = DataModule(graph(), [3], {"train": "some"}, batch_size=40, input_weight=[1.0] + [0.0] * 39)
    assert [batch.input_id.tolist() for batch in weighted.train_dataloader()] == [[0] * 40]
    data.close()
    weighted.close()


def test_another_number_of_processes_goes_on_between_epochs_only(path: Path) -> None:
    budget = MemoryBudget("64MiB")
    data = DataModule(path, [3], {"train": "some"}, batch_size=8, memory=budget)
    assert data.state_dict() == {}
    batches = iter(data.train_dataloader())
    next(batches)
    within = data.state_dict()
    assert within == {"processes": 1, "within an epoch": True}
    list(batches)
    whole = data.state_dict()
    assert whole == {"processes": 1, "within an epoch": False}
    data.trainer = SimpleNamespace(world_size=3, strategy=None)
    data.load_state_dict(whole)
    assert data.train_dataloader() is data.loader("train")
    data.load_state_dict(within)
    with pytest.raises(errors.RankError, match="within an epoch by 1 processes, and there are 3"):
        data.train_dataloader()
    data.close()


@pytest.mark.parametrize(
    ("inputs", "options", "error", "message"),
    [
        ({}, {}, errors.InvalidArgumentError, "inputs must name one of the stages"),
        ({"fit": None}, {}, errors.InvalidArgumentError, "a stage of inputs must be one of"),
        ("train", {}, errors.DTypeError, "inputs must be a mapping by stage, got 'train'"),
        ({"train": None}, {"per_stage": {"valid": {}}}, errors.InvalidArgumentError, "a stage of per_stage"),
    ],
)
def test_wrong_stages(inputs: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        DataModule("nowhere", [3], inputs, **options)


def test_what_a_loader_refuses(path: Path) -> None:
    data = DataModule(path, [3], {"train": "some"}, batchsize=8)
    with pytest.raises(errors.InvalidArgumentError, match="stage must be one of 'train', got 'val'"):
        data.loader("val")
    with pytest.raises(errors.DTypeError, match="batch_size"):
        data.train_dataloader()
