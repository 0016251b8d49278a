"""Directories beside a path: what others have there stays, and a kill at any call leaves what the next call mends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import freshgo
from freshgo import errors

CHILDREN = """
import os, sys
from pathlib import Path
from freshgo._staging.publishing import publish, recover
from freshgo._staging.workplace import workplace

home, work = Path(sys.argv[1]), sys.argv[2]
target = home / "g"

def whole(path):
    return (path / "mark").exists() and len(list(path.iterdir())) == 7

def fill(path, text):
    for i in range(6):
        (path / f"file{i}").write_text(text)
    (path / "mark").write_text(text)

def waits():
    with workplace(target, ".tables") as directory:
        (directory / "below").mkdir()
        fill(directory / "below", "")
        fill(directory, "")

def published():
    with workplace(target, ".tables") as directory:
        recover(target, whole)
        (directory / "new").mkdir()
        fill(directory / "new", "new")
        publish(directory / "new", target)

def dying(call):
    def counted(*args, **kwargs):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return call(*args, **kwargs)
    return counted

def child(calls):
    global left
    pid = os.fork()
    if pid == 0:
        left = calls
        for name in ("unlink", "rmdir", "rename", "mkdir", "fsync"):
            setattr(os, name, dying(getattr(os, name)))
        try:
            globals()[work]()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

calls = 0
while True:
    if work == "published":
        target.mkdir()
        fill(target, "old")
    ended = child(calls)
    assert ended in (0, 9), (calls, ended)
    if work == "published":
        aside = home / "g.replaced"
        assert whole(target) or not target.exists() and whole(aside), (calls, sorted(home.rglob("*")))
    assert child(10**6) == 0, f"after a kill at call {calls}"
    if work == "published":
        assert whole(target) and (target / "mark").read_text() == "new", calls
        for file in target.iterdir():
            file.unlink()
        target.rmdir()
    assert not list(home.iterdir()), (calls, list(home.iterdir()))
    if ended == 0:
        break
    calls += 1
print(calls)
"""


@pytest.mark.parametrize("work", ["waits", "published"])
def test_a_kill_at_any_call(tmp_path: Path, work: str) -> None:
    """A lock file that was removed before the others made the directory nobody's, which blocked the next call."""
    done = subprocess.run([sys.executable, "-c", CHILDREN, tmp_path, work], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10


@pytest.mark.parametrize("name", ["g.shard", "g.replaced"])
def test_what_others_have_beside_the_path_stays(tmp_path: Path, name: str) -> None:
    """A directory of this name was removed."""
    given = tmp_path / "given"
    graph: Any = {"edge_index": np.zeros((2, 1), np.int64), "x": np.zeros((10, 4), np.float32)}
    freshgo.convert(graph, given, progress=False).close()
    mine = tmp_path / name / "mine"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(errors.StoreExistsError, match=f"{name}.* is in the way"):
        freshgo.shard(given, tmp_path / "g", parts=2, overwrite=True, progress=False)
    if name == "g.replaced":
        with pytest.raises(errors.StoreExistsError, match=f"{name}.* is in the way"):
            freshgo.fetch(f"file://{given}", tmp_path / "g", overwrite=True, progress=False)
    assert mine.read_text() == "mine" and not (tmp_path / "g").exists()
