"""Jobs under torchrun: the example, and workers that are killed and started again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import warm
from rank_jobs import digest, open_loader, torchrun
from share_jobs import servers, wait_until

from freshgo import convert

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "ddp.py"
LINE = re.compile(r"epoch (\d): loss [\d.]+, accuracy ([\d.]+)% of (\d+) seeds")


SCRIPT = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"


def test_the_example_trains_and_goes_on_with_other_processes(tmp_path: Path) -> None:
    if not EXAMPLE.exists():
        pytest.skip("the examples are not beside the tests")
    pytest.importorskip("torch_geometric")
    options = ["--nodes=4000", f"--directory={tmp_path}", f"--state={tmp_path / 'state.pt'}"]
    first = LINE.findall(torchrun(2, EXAMPLE, *options, "--epochs=2", "--share"))
    assert [(epoch, seeds) for epoch, _, seeds in first] == [("0", "800"), ("1", "800")]
    alone = warm.start(SCRIPT, EXAMPLE, *options, "--epochs=4")
    printed, said = alone.communicate()
    assert alone.returncode == 0, said
    rest = LINE.findall(printed)
    assert [(epoch, seeds) for epoch, _, seeds in rest] == [("2", "800"), ("3", "800")]
    assert float(rest[-1][1]) > 35  # of eight classes, by a model that two processes have begun and one has ended


@pytest.mark.long
@pytest.mark.parametrize("options", [[], ["--share"], ["--sharded"]])
def test_every_way_of_the_example(tmp_path: Path, options: list[str]) -> None:
    """The accuracy equals the accuracy with a loader for each rank, since the batches are equal."""
    pytest.importorskip("torch_geometric")
    common = ["--nodes=4000", f"--directory={tmp_path}", "--epochs=2"]
    assert torchrun(2, EXAMPLE, *common, *options) == torchrun(2, EXAMPLE, *common)


WORKER = """
import json, os, sys
from pathlib import Path
import torch.distributed as dist
sys.path.insert(0, sys.argv[1])
from rank_jobs import digest, open_loader

path, directory = sys.argv[2], Path(sys.argv[3])
rank, begun = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
dist.init_process_group("gloo", init_method=f"file://{directory}/group-{begun}", rank=rank, world_size=2)
state = directory / "state.json"
with open_loader(path, share=json.loads(sys.argv[4])) as loader, (directory / f"{begun}-{rank}").open("w") as log:
    if state.exists():
        loader.load_state_dict(json.loads(state.read_text()))
    for step, batch in enumerate(loader):
        print(digest(batch), file=log, flush=True)
        dist.barrier()
        if rank == 0 and step % 2 == 1:
            state.with_suffix(".new").write_text(json.dumps(loader.state_dict()))
            state.with_suffix(".new").replace(state)
        dist.barrier()
        if begun == "0" and rank == 1 and step == 4:
            os.kill(os.getpid(), 9)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("share", [pytest.param(None, marks=pytest.mark.long), "host"])
def test_a_worker_that_is_killed_goes_on_from_the_last_state(tmp_path: Path, share: str | None) -> None:
    """Four batches before the state that the second attempt begins with, one step that is made again, and the rest."""
    rng = np.random.default_rng(0)
    graph = {"edge_index": rng.integers(300, size=(2, 2000)), "x": rng.random((300, 4), dtype=np.float32)}
    convert(graph, tmp_path / "graph", progress=False).close()
    (tmp_path / "worker.py").write_text(WORKER)
    oracles = Path(__file__).resolve().parents[1] / "oracles"
    torchrun(2, tmp_path / "worker.py", oracles, tmp_path / "graph", tmp_path, json.dumps(share), restarts=1)
    with open_loader(tmp_path / "graph") as loader:
        expected = [digest(batch) for batch in loader]
    assert len(expected) == 14
    logs = {path.name: path.read_text().split() for path in tmp_path.glob("[01]-[01]")}
    for rank in range(2):
        assert logs[f"0-{rank}"][:5] == expected[rank:10:2]  # rank 0 may have had another one before it ended
        assert logs[f"1-{rank}"] == expected[8 + rank :: 2]
    assert json.loads((tmp_path / "state.json").read_text())["batches"] == 12
    assert wait_until(lambda: not servers())
