"""Lightning and Accelerate: their own loops over a loader that is given to them as it is."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from rank_jobs import digest, open_loader, torchrun
from seeds import seed as seed_of

from freshgo import convert

COMMON = """
import os, sys
from pathlib import Path
import torch
import torch.distributed as dist
sys.path.insert(0, sys.argv[1])
from rank_jobs import digest, open_loader

path, directory = sys.argv[2], Path(sys.argv[3])
rank = int(os.environ["RANK"])

def note(name, lines):
    (directory / f"{name}-{rank}").write_text("\\n".join(lines))
"""

LIGHTNING = (
    COMMON
    + """
import lightning
from lightning.pytorch.callbacks import ModelCheckpoint
from freshgo.lightning import DataModule

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model, self.seen, self.valid = torch.nn.Linear(4, 2), [], []
    def training_step(self, batch, index):
        self.seen.append(digest(batch))
        return self.model(batch.x).square().mean()
    def validation_step(self, batch, index):
        self.valid += batch.input_id.tolist()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def fit(steps, resume, *data):
    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, max_steps=steps, default_root_dir=directory,
        logger=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        callbacks=[ModelCheckpoint(dirpath=directory, filename="{step}", every_n_train_steps=3, save_top_k=-1)],
    )
    trainer.fit(module, *data, ckpt_path=resume)
    return module

def module():
    return DataModule(path, [4, 3], {"train": None, "val": None}, batch_size=23, seed=3, memory="64MiB")

with open_loader(path) as train, open_loader(path, shuffle=False, uneven="join") as valid:
    note("loaders", fit(3, None, train, valid).seen)
note("begun", fit(6, directory / "step=3.ckpt", module()).seen)
resumed = fit(-1, directory / "step=6.ckpt", module())
note("resumed", resumed.seen)
note("valid", map(str, resumed.valid))
"""
)

ACCELERATE = (
    COMMON
    + """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 2)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
seen = []
with open_loader(path) as loader:  # is not prepared: it knows its rank, and where its batches go
    accelerator.register_for_checkpointing(loader)
    for batch in loader:
        accelerator.backward(model(batch.x).square().mean())
        optimizer.step()
        optimizer.zero_grad()
        seen.append(digest(batch))
        if len(seen) == 3:
            accelerator.save_state(directory / "state")
    note("whole", seen)
    accelerator.load_state(directory / "state")
    note("rest", [digest(batch) for batch in loader])
"""
)


def by_two(tmp_path: Path, script: str) -> list[str]:
    """Run a script by two processes; the batches of an epoch in one."""
    rng = np.random.default_rng(seed_of(0))
    graph = {"edge_index": rng.integers(300, size=(2, 2000)), "x": rng.random((300, 4), dtype=np.float32)}
    convert(graph, tmp_path / "graph", progress=False).close()
    (tmp_path / "job.py").write_text(script)
    oracles = Path(__file__).resolve().parents[1] / "oracles"
    torchrun(2, tmp_path / "job.py", oracles, tmp_path / "graph", tmp_path)
    with open_loader(tmp_path / "graph") as loader:
        return [digest(batch) for _ in range(2) for batch in loader]


def noted(tmp_path: Path, name: str) -> list[list[str]]:
    return [(tmp_path / f"{name}-{rank}").read_text().split() for rank in range(2)]


@pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="lightning is not installed")
def test_lightning_resumes_within_an_epoch(tmp_path: Path) -> None:
    """Its own checkpoints hold the position: of a loader that it is given, and of a data module's."""
    expected = by_two(tmp_path, LIGHTNING)
    assert len(expected) == 28
    assert noted(tmp_path, "loaders") == [expected[rank:6:2] for rank in range(2)]
    assert noted(tmp_path, "begun") == [expected[6 + rank : 12 : 2] for rank in range(2)]
    assert noted(tmp_path, "resumed") == [expected[12 + rank :: 2] for rank in range(2)]
    valid = noted(tmp_path, "valid")
    assert sorted(map(int, valid[0] + valid[1])) == sorted([*range(300)] * 2)  # after each epoch, every seed once


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed")
def test_accelerate_saves_a_loader_that_is_registered(tmp_path: Path) -> None:
    expected = by_two(tmp_path, ACCELERATE)
    assert noted(tmp_path, "whole") == [expected[rank:14:2] for rank in range(2)]
    assert noted(tmp_path, "rest") == [expected[6 + rank : 14 : 2] for rank in range(2)]
