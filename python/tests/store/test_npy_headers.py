"""Headers of ``.npy`` files that are anything at all: what they describe lies in the file, or they are refused."""

from __future__ import annotations

import io
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seeds import seed as seed_of

from freshgo._args.npy_files import read_header, read_npy_header
from freshgo.errors import DTypeError, FormatError

MUTANTS = int(os.environ.get("FRESHGO_TEST_MUTANTS", "1000"))
WORDS = "'descr' 'shape' 'fortran_order' '<f4' '|O' '>i8' '<f4,<i2' [('a','<f4')] None True (3,4) (1,) () {[]:1} 0x 1e9"
PIECES = [
    *WORDS.encode().split(),
    *(bytes([byte]) for byte in b"()[]{}-+,:'Lj*_\n\0\xff"),
    *(b"9" * 19, b"9" * 3000, b"(" * 150, b"-" * 3000, b"\xc3\xa9"),
]


def whole() -> list[bytes]:
    """Files of every form that is written."""
    files = []
    fields = [("a", "<f4"), ("b", "<i2")]
    arrays: list[Any] = [np.zeros((3, 4), np.float32), np.zeros(0, bool), np.zeros((), np.int64), np.zeros(2, fields)]
    arrays += [np.zeros((2, 3), ">i8", order="F"), np.array([None, "x"], object)]
    for array in arrays:
        for version in ((1, 0), (2, 0), (3, 0)):
            file = io.BytesIO()
            np.lib.format.write_array(file, array, version, allow_pickle=True)
            files.append(file.getvalue())
    return files


def changed(file: bytes, draw: random.Random) -> bytes:
    """With a piece in the place of some bytes, and often with a length of the header that fits it."""
    at = draw.randrange(8, len(file) + 1)
    cut = at + (draw.randrange(12) if draw.random() < 0.8 else draw.randrange(200))
    piece = draw.choice(PIECES) if draw.random() < 0.8 else draw.randbytes(draw.randrange(4))
    file = file[:at] + piece + file[cut:]
    end = file.find(b"\n", 10)
    if file[6:7] == b"\1" and end > 0 and draw.random() < 0.7:
        file = file[:8] + (end - 9).to_bytes(2, "little") + file[10:]
    return file


@pytest.mark.explore
@pytest.mark.filterwarnings("ignore")
def test_mutants(tmp_path: Path) -> None:
    """Each is read where it lies in memory, and now and then from a file, which must have what the header says."""
    draw, path, good = random.Random(seed_of(0)), tmp_path / "a.npy", whole()
    read = refused = 0
    file = good[0]
    for number in range(MUTANTS):
        file = changed(draw.choice(good) if draw.random() < 0.7 or len(file) > 5000 else file, draw)
        try:
            header = read_header(io.BytesIO(file), "a.npy")
            assert all(0 <= n < 1 << 63 for n in header.shape), file
            n_bytes = header.dtype.itemsize
            for n in header.shape:
                n_bytes *= n
            assert 0 < header.size <= len(file) and n_bytes == header.n_bytes < 1 << 63, file
            assert not header.dtype.hasobject and header.dtype.names is None, file
            whether_read = True
        except (FormatError, DTypeError):
            whether_read = False
        except BaseException:
            print(file)
            raise
        refused += not whether_read
        if whether_read or number % 16 == 0:
            path.write_bytes(file)
            try:
                found = read_npy_header(path)
            except (FormatError, DTypeError):
                continue
            assert whether_read, file
            read += 1
            assert found.offset + header.n_bytes <= len(file), file
    print(f"{MUTANTS} headers: {refused} refused")
    assert refused > read > 0


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }",
        b"{'descr': '<f4', 'fortran_order': False, 3: (2,), }",
        b"{'descr': '<f4', 'fortran_order': False, []: (2,), }",
        b"-" * 9000 + b"1",
        b"(" * 9000,
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + (b"9" * 4000 + b", ") * 2 + b"), }",
        b"\xff",
    ],
    ids=lambda header: repr(header[:60]),
)
def test_headers_that_are_refused(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY\1\0" + (len(header) + 1).to_bytes(2, "little") + header + b"\n" + bytes(100))
    with pytest.raises(FormatError, match=r"a\.npy"):
        read_npy_header(path)
