"""Graphs that several test files share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from graphs import Graph, forms, hetero_graph, random_graph
from machines import gpu, machine, pytest_runtest_logreport  # noqa: F401
from parts import GIVEN as PART
from parts import pytest_collection_modifyitems  # noqa: F401
from seeds import GIVEN
from seeds import seed as seed_of

import freshgo

# Beside other processes PyTorch's threads wait for each other at every operation: a training of small batches takes ten
# times as long. The tests of the operators say themselves how many threads they use.
os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that tests start
torch.set_num_threads(1)
# Calibrations of the tests' stores stay out of the user's cache.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="freshgo-tests-")
CACHE = os.environ["XDG_CACHE_HOME"]
# Processes of the tests say nothing of a library with CUDA that this machine cannot use; test_device_library.py does.
os.environ["PYTHONWARNINGS"] = "ignore:freshgo runs on the CPU alone:UserWarning"


def pytest_unconfigure() -> None:
    shutil.rmtree(CACHE, ignore_errors=True)  # a process that a test left behind may be writing there


def pytest_report_header() -> str:
    drawn = f"FRESHGO_TEST_SEED={GIVEN or 'unset'}, FRESHGO_TEST_PART={PART}"
    return f"freshgo {freshgo.__version__} from {Path(freshgo.__file__).parent}, {drawn}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if (GIVEN or PART != "1") and terminalreporter.getreports("failed"):
        terminalreporter.write_line(f"these tests ran with FRESHGO_TEST_SEED={GIVEN} FRESHGO_TEST_PART={PART}")


@pytest.fixture(autouse=True)
def drawn(request: pytest.FixtureRequest) -> None:
    """What PyTorch draws in a test depends on the test and on ``FRESHGO_TEST_SEED``, not on the tests before it."""
    torch.manual_seed(seed_of(zlib.crc32(request.node.nodeid.encode())))


@pytest.fixture
def without_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyG multiplies sparse matrices without MKL, whose product writes beyond its memory now and then."""
    monkeypatch.setattr(pytest.importorskip("torch_geometric.typing"), "NO_MKL", True)


@pytest.fixture(scope="session")
def graph() -> dict[str, Any]:
    return random_graph()


@pytest.fixture(scope="session")
def store_path(graph: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "graph.freshgo"
    freshgo.convert(graph, path, memory="64MiB", progress=False).close()
    return path


@pytest.fixture
def store(store_path: Path) -> Any:
    with freshgo.Store.open(store_path) as opened:
        yield opened


form = forms(random_graph, hetero_graph, "session")


@pytest.fixture(scope="session")
def typed() -> Graph:
    """A graph of several types, for what others do not have."""
    return hetero_graph()


@pytest.fixture(scope="session")
def typed_path(typed: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("typed") / "graph.freshgo"
    freshgo.convert(typed, path, progress=False).close()
    return path


def _test_data() -> Path | None:
    """$FRESHGO_TEST_DATA, or a directory shared/data beside the checkout or beside one of its parents."""
    given = os.environ.get("FRESHGO_TEST_DATA")
    if given:
        return Path(given)
    for parent in Path(__file__).resolve().parents:
        if (parent / "shared" / "data" / "README.md").is_file():
            return parent / "shared" / "data"
    return None


@pytest.fixture(scope="session")
def real_graph(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Unpack a real graph by name and return its directory; skips where the data are not there."""
    packs = _test_data()
    unpacked = tmp_path_factory.mktemp("real")

    def unpack(name: str) -> Path:
        if packs is None or not (packs / f"{name}.tar.xz").is_file():
            pytest.skip(f"no {name}.tar.xz: neither $FRESHGO_TEST_DATA nor a shared/data beside the checkout has it")
        if not (unpacked / name).exists():
            with tarfile.open(packs / f"{name}.tar.xz") as tar:
                tar.extractall(unpacked, filter="data")
        return unpacked / name

    unpack.packs = packs  # type: ignore[attr-defined]
    return unpack


@pytest.fixture(scope="session")
def arxiv(real_graph: Any) -> Path:
    """The directory of ogbn-arxiv with ``x_struct.npy``, structural features that are computed once (a minute)."""
    directory: Path = real_graph("ogbn-arxiv-nofeat")
    if not (directory / "x_struct.npy").is_file():
        subprocess.run([sys.executable, real_graph.packs / "struct_feats.py", directory], check=True)
    return directory


@pytest.fixture
def no_warnings() -> Iterator[None]:
    """A warning is an error, except PyTorch's own."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", module="torch")
        yield
