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

from freshgo import LinkLoader, Loader, MemoryBudget, convert, errors, nn, optim

pytest.importorskip("lightning")
import lightning

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
        ({}, {}, errors.InvalidArgumentError, "inputs must name at least one of the stages"),
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
    with pytest.raises(errors.InvalidArgumentError, match="stage must be 'train', got 'val'"):
        data.loader("val")
    with pytest.raises(errors.DTypeError, match="batch_size"):
        data.train_dataloader()


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, nodes = np.random.default_rng(seed(4)), 4000
    path = tmp_path_factory.mktemp("module") / "graph"
    splits = {"train": np.arange(2000), "valid": np.arange(2000, 3000), "test": np.arange(3000, nodes)}
    edges, x = rng.integers(nodes, size=(2, 20_000)), rng.standard_normal((nodes, 256), dtype=np.float32)
    convert({"edge_index": edges, "x": x, "splits": splits}, path, progress=False).close()
    return path


class Module(lightning.LightningModule):
    """Notes the input nodes of every batch, and fails at the training step with the given number."""

    def __init__(self, fails: int | None = None) -> None:
        super().__init__()
        self.model, self.fails = torch.nn.Linear(256, 2), fails
        self.seen: dict[str, list[list[int]]] = {"train": [], "val": [], "test": [], "predict": []}

    def training_step(self, batch: Any, index: int) -> Any:
        if len(self.seen["train"]) == self.fails:
            raise ValueError("a step failed")
        self.seen["train"].append(batch.input_id.tolist())
        return self.model(batch.x).square().mean()

    def validation_step(self, batch: Any, index: int, dataloader_idx: int = 0) -> None:
        self.seen["val"].append(batch.input_id.tolist())

    def test_step(self, batch: Any, index: int) -> None:
        self.seen["test"].append(batch.input_id.tolist())

    def predict_step(self, batch: Any, index: int) -> None:
        self.seen["predict"].append(batch.input_id.tolist())

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(**options: Any) -> Any:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    return lightning.Trainer(**quiet, enable_model_summary=False, **{"max_epochs": 2, **options})


STAGES = {"train": "train", "val": "valid", "test": "test", "predict": None}


@pytest.mark.filterwarnings("ignore")  # of Lightning, that the loaders have few workers
@pytest.mark.parametrize(
    ("memory", "options", "trained", "validated"),
    [
        ("8MiB", {}, 40, 2 + 20),
        (None, {}, 40, 2 + 20),
        ("8MiB", {"fast_dev_run": True}, 1, 1),
        ("8MiB", {"limit_train_batches": 5, "limit_val_batches": 3}, 10, 2 + 6),
        ("16MiB", {"val_check_interval": 5}, 40, 2 + 80),
        ("8MiB", {"val_check_interval": 0.5, "limit_val_batches": 0.5, "num_sanity_val_steps": -1}, 40, 5 + 20),
    ],
)
def test_any_trainer_fits_within_one_budget(
    larger: Path, memory: str | None, options: dict[str, Any], trained: int, validated: int
) -> None:
    data = DataModule(larger, [2, 2], STAGES, batch_size=100, seed=1, memory=memory)
    module, of = Module(), trainer(**options)
    of.fit(module, data)
    assert len(module.seen["train"]) == trained
    epoch = module.seen["train"][:20]
    assert trained < 20 or sorted(node for batch in epoch for node in batch) == list(range(2000))
    assert len(module.seen["val"]) == validated
    of.test(module, data, verbose=False)
    of.predict(module, data)
    whole = not options.get("fast_dev_run")
    assert (len(module.seen["test"]), len(module.seen["predict"])) == ((10, 40) if whole else (1, 1))
    assert sum(loader.stats()["openings"] for loader in data._open.values()) <= 12
    data.close()


@pytest.mark.filterwarnings("ignore")
def test_trainers_one_after_the_other(larger: Path) -> None:
    """A step that fails leaves a loader in mid-epoch; overfitting takes the same batches in every epoch."""
    data = DataModule(larger, [2, 2], STAGES, batch_size=100, seed=1, memory="8MiB")
    with pytest.raises(ValueError, match="a step failed"):
        trainer().fit(Module(fails=3), data)
    module = Module()
    trainer(overfit_batches=3).fit(module, data)
    assert module.seen["train"] == [list(range(first, first + 100)) for first in (0, 100, 200)] * 2
    module = Module()
    trainer(max_epochs=1).fit(module, data)
    assert len(module.seen["train"]) == 20
    assert module.seen["train"][0] != list(range(100))
    data.close()


@pytest.mark.filterwarnings("ignore")
def test_several_loaders_at_once(larger: Path) -> None:
    class Both(Module):
        def training_step(self, batch: Any, index: int) -> Any:
            return super().training_step(batch["one"], index) + self.model(batch["other"].x).mean()

    budget = MemoryBudget("16MiB")
    loaders = [Loader(larger, [2, 2], split, batch_size=100, memory=budget) for split in ("train", "valid", "test")]
    module = Both()
    trainer().fit(module, {"one": loaders[0], "other": loaders[1]}, loaders[1:])
    assert (len(module.seen["train"]), len(module.seen["val"])) == (40, 2 + 2 + 2 * 20)
    for loader in loaders:
        loader.close()


def test_it_prints_without_opening_a_loader(larger: Path) -> None:
    data = DataModule(larger, [2, 2], STAGES, batch_size=100)
    for text in (str(data), repr(data)):
        assert text == f"DataModule({larger}, [2, 2], train='train', val='valid', test='test', predict=None)"
    assert len(data.train_dataloader()) == 20
    assert str(data).endswith("predict=None, open: train: 20 batches)")
    data.close()
    in_memory = DataModule(graph(), [3], {"train": torch.arange(20)})
    assert "train=a Tensor of shape [20]" in str(in_memory)


class _Tables(lightning.LightningModule):  # type: ignore[misc]
    """Trains a table and a layer, and notes what validation reads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.emb = nn.Embedding(path, num_embeddings=90, embedding_dim=3)
        self.dense = torch.nn.Linear(3, 1)
        self.steps: list[torch.Tensor] = []
        self.read = 0

    def training_step(self, batch: Any, _: int) -> None:
        for one in self.optimizers():
            one.zero_grad()
        self.manual_backward(self.dense(self.emb(batch.n_id)).pow(2).sum())
        for one in self.optimizers():
            one.step()
        self.steps.append(batch.n_id)

    def validation_step(self, batch: Any, _: int) -> None:
        with torch.no_grad():
            everything = self.emb(torch.arange(90))
        assert torch.equal(self.emb(batch.n_id), everything[batch.n_id])
        self.read += 1

    def on_validation_epoch_end(self) -> None:
        self.emb.save()  # before Lightning writes a checkpoint, which has its token

    def configure_optimizers(self) -> list[Any]:
        return [optim.Adagrad(self.emb.tables()), torch.optim.SGD(self.dense.parameters(), lr=0.01)]


def test_stages_share_tables_that_learn(path: Path, tmp_path: Path) -> None:
    model = _Tables(tmp_path / "t.emb")
    with torch.no_grad():
        before = model.emb(torch.arange(90))
    data = DataModule(path, [3], {"train": "some", "val": "rest"}, batch_size=8, memory="24MiB", embeddings=model.emb)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        val_check_interval=2,
    )
    trainer.fit(model, data)
    assert model.read >= 7 * 4 and len(model.steps) == 10, "validation runs at first, within epochs and after them"
    trained = torch.zeros(90, dtype=torch.bool)
    trained[torch.cat(model.steps)] = True
    with torch.no_grad():
        changed = (model.emb(torch.arange(90)) != before).any(1)
    assert torch.equal(changed, trained)
    data.close()
    model.emb.close()
