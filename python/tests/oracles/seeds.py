"""Seeds of tests that explore: constants, unless ``FRESHGO_TEST_SEED`` asks for others (``make explore``)."""

from __future__ import annotations

import os
import zlib

GIVEN = os.environ.get("FRESHGO_TEST_SEED", "")
"""Empty where every test has the seeds that are written in it."""


def seed(constant: int) -> int:
    """Return ``constant``, or what ``FRESHGO_TEST_SEED`` makes of it.

    Random graphs, options and values take it. Only tests marked ``explore`` are run with other seeds: others may expect
    a result of the constant. Constants without it are those of recorded values, of scripts that run by themselves, of
    the documentation, and of trainings on real graphs.
    """
    return zlib.crc32(f"{GIVEN} {constant}".encode()) if GIVEN else constant
