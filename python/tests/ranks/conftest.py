"""Processes that tests of ranks share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from rank_jobs import Ranks


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with contextlib.closing(Ranks(4, tmp_path_factory.mktemp("groups"))) as workers:
        yield workers
