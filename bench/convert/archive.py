"""Conversion of compressed features in an archive, as ogbn-papers100M has them, against the disk's write rate.

    python bench/convert/archive.py DIR [--mib 256] [--rounds 3] [--stored]

A round writes the bytes of the features to a file and makes them durable, converts the archive, and decompresses its
member without writing anything, in turns. Random numbers in steps of 1/64 shrink about as OGB's features do. Archives
of ``numpy.savez`` are not compressed: ``--stored``.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import freshgo

COLUMNS, PIECE = 128, 1 << 20


def write_archive(path: Path, rows: int, method: int) -> None:
    """Write features and few edges, a piece at a time."""
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(path, "w", method, compresslevel=6) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as member:
            header = {"descr": "<f4", "fortran_order": False, "shape": (rows, COLUMNS)}
            np.lib.format.write_array_header_1_0(member, header)
            for first in range(0, rows, 8192):
                part = rng.standard_normal((min(8192, rows - first), COLUMNS))
                member.write(np.round(part * 64).astype(np.float32) / np.float32(64))
        with archive.open("edge_index.npy", "w") as member:
            np.save(member, rng.integers(rows, size=(2, 1000)))


def write_plain(path: Path, n_bytes: int) -> None:
    """Write bytes one after the other and wait until they are on the disk."""
    piece = os.urandom(PIECE)
    with path.open("wb", buffering=0) as file:
        for _ in range(n_bytes // PIECE):
            file.write(piece)
        os.fsync(file.fileno())
    path.unlink()


def inflate(path: Path) -> None:
    """Decompress the features and drop them."""
    with zipfile.ZipFile(path) as archive, archive.open("x.npy") as member:
        while member.read(PIECE):
            pass


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Return seconds, and seconds of the processor."""
    before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    call()
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="on the device to measure")
    parser.add_argument("--mib", type=int, default=256, help="of features (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="the median counts (default: %(default)s)")
    parser.add_argument("--stored", action="store_true", help="an archive that is not compressed")
    options = parser.parse_args()
    n_bytes = options.mib << 20
    archive, store = options.directory / "archive.npz", options.directory / "archive.freshgo"
    method = zipfile.ZIP_STORED if options.stored else zipfile.ZIP_DEFLATED
    write_archive(archive, n_bytes // (4 * COLUMNS), method)
    print(f"{options.mib} MiB of features, {archive.stat().st_size / n_bytes:.2f} of that compressed")

    def convert() -> None:
        freshgo.convert(archive, store, memory="64MiB", overwrite=True, progress=False).close()

    contest: dict[str, Callable[[], object]] = {
        "plain write": lambda: write_plain(options.directory / "archive.plain", n_bytes),
        "convert": convert,
        "decompress": lambda: inflate(archive),
    }
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in contest}
    for _ in range(options.rounds):
        for name, call in contest.items():
            rounds[name].append(timed(call))
    for name, times in rounds.items():
        wall, processor = (statistics.median(column) for column in zip(*times, strict=True))
        walls = ", ".join(f"{wall:.2f}" for wall, _ in times)
        print(f"{name}: {n_bytes / wall / 1e6:.0f} MB/s, {processor:.2f} s of the processor ({walls} s)")
    for name in ("plain write", "decompress"):
        ratio = [other[0] / own[0] for other, own in zip(rounds[name], rounds["convert"], strict=True)]
        print(
            f"conversion at {statistics.median(ratio):.2f} of the rate of {name} ({min(ratio):.2f} to {max(ratio):.2f})"
        )
    archive.unlink()
    for file in store.iterdir():
        file.unlink()
    store.rmdir()


if __name__ == "__main__":
    main()
