"""What a loader takes of its host where it is told nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from freshgo import Loader, errors
from freshgo._args import host, size


def limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mine: str, files: dict[str, str], affinity: int) -> None:
    """Let this process be in these control groups, with so many cores by its affinity."""
    (tmp_path / "mine").write_text(mine)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(host, "_MINE", tmp_path / "mine")
    monkeypatch.setattr(host, "_CGROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)))


@pytest.mark.parametrize(
    ("mine", "files", "cores"),
    [
        ("", {}, 8),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n"}, 8),
        ("0::/a/b\n", {"a/b/cpu.max": "250000 100000\n"}, 2.5),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 50000\n"}, 6),
        ("0::/a/b\n", {"a/b/cpu.max": "1600000 100000\n"}, 8),
        ("0::/a/b\n", {"a/b/cpu.max": "nonsense\n"}, 8),
        ("0::/\n3:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 8),
        ("0::/\n3:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "400000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 4),
    ],
)
def test_cores_are_those_of_affinity_and_quota(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mine: str, files: dict[str, str], cores: float
) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    limits(monkeypatch, tmp_path, mine, files, 8)
    assert host.cores() == cores
    assert host.threads() == int(cores)
    for ranks, threads in (("2", int(cores / 2)), ("3", int(cores / 3)), ("64", 1)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        assert host.threads() == max(1, threads)


def test_ranks_of_a_host_share_threads_and_memory(monkeypatch: pytest.MonkeyPatch, store_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    monkeypatch.setattr(host, "_MINE", Path("/nowhere"))
    monkeypatch.setattr(size, "_machine_room", lambda: 9 << 30)
    found: dict[str, Any] = {}
    for ranks in ("", "1", "3"):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        with Loader(store_path, [3], batch_size=100) as loader:
            stats = loader.stats()
            found[ranks] = stats["num_workers"], stats["memory_limit"]
    assert found == {"": (12, 9 << 29), "1": (12, 9 << 29), "3": (4, 3 << 29)}
    with Loader(store_path, [3], batch_size=100, num_workers=5, memory="1GiB") as loader:  # told, it takes that
        stats = loader.stats()
        assert (stats["num_workers"], stats["memory_limit"]) == (5, 1 << 30)


@pytest.mark.parametrize("ranks", ["0", "-1", "two", "1.5", "\u0662"])
def test_a_number_of_ranks_that_is_none(monkeypatch: pytest.MonkeyPatch, store_path: Path, ranks: str) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    with pytest.raises(errors.InvalidArgumentError, match=f"LOCAL_WORLD_SIZE.*{ranks}"):
        Loader(store_path, [3], batch_size=100)


def test_memory_is_that_of_the_control_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without page cache, which files that were read twice have filled up to the limit."""
    stat = "active_file 14000\ninactive_file 1000\n"
    of_group = {"a/memory.max": "50000\n", "a/memory.current": "50000\n", "a/memory.stat": stat}
    limits(monkeypatch, tmp_path, "0::/a/b\n", of_group, 8)
    assert size.available_memory() == 15_000
    below = "inactive_file 7\nactive_file 7\ntotal_inactive_file 2000\ntotal_active_file 3000\n"
    of_group = {"limit_in_bytes": "50000\n", "usage_in_bytes": "40000\n", "stat": below}
    limits(
        monkeypatch, tmp_path, "4:memory:/a/b\n", {f"memory/a/memory.{name}": of_group[name] for name in of_group}, 8
    )
    assert size.available_memory() == 15_000
