"""Convert tables with integer and with text keys, from Parquet and CSV: processor time of this freshgo, or of two.

    python bench/convert/tables.py DIR [OTHER_PYTHON]

Every conversion runs in a process of its own. With the Python of another installation the two take turns. The edges are
counted, so that no row is lost.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np

EDGES, NODES = 5_000_000, 500_000
ROUNDS = 3

CONVERSION = """
import sys, time
from freshgo import Table, convert_tables
folder, kind, form, edges = sys.argv[1:]
nodes = Table(f"{folder}/{kind}-nodes.{form}", id="id")
links = Table(f"{folder}/{kind}-edges.{form}", src="s", dst="d")
begin = time.process_time()
with convert_tables(nodes, links, f"{folder}/store", memory="1GiB", progress=False, overwrite=True) as store:
    assert store.num_edges == int(edges), store.num_edges
print(time.process_time() - begin)
"""


def write(folder: Path) -> None:
    """Write the same graph with both kinds of keys, in both formats."""
    import pyarrow as pa
    from pyarrow import compute, csv, parquet

    rng = np.random.default_rng(0)
    ids = rng.permutation(NODES) * 7 + 10**9
    ends = ids[rng.integers(NODES, size=(2, EDGES))]
    for kind in ("integers", "text"):

        def keys(values: np.ndarray, kind: str = kind) -> pa.Array:
            numbers = pa.array(values)
            return (
                numbers if kind == "integers" else compute.binary_join_element_wise("user", numbers.cast("string"), "-")
            )

        tables = {"nodes": pa.table({"id": keys(ids)}), "edges": pa.table({"s": keys(ends[0]), "d": keys(ends[1])})}
        for name, table in tables.items():
            parquet.write_table(table, folder / f"{kind}-{name}.parquet")
            csv.write_csv(table, folder / f"{kind}-{name}.csv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir", type=Path, help="an empty directory for 700 MB")
    parser.add_argument("other", nargs="?", help="the Python of another installation of freshgo")
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    write(options.dir)
    pythons = {"this": sys.executable, **({"other": options.other} if options.other else {})}
    for kind in ("integers", "text"):
        for form in ("parquet", "csv"):
            times: dict[str, list[float]] = {name: [] for name in pythons}
            for _ in range(ROUNDS):
                for name, python in pythons.items():
                    given = [python, "-I", "-c", CONVERSION, str(options.dir), kind, form, str(EDGES)]
                    done = subprocess.run(given, check=True, capture_output=True, text=True)
                    times[name].append(float(done.stdout))
            medians = {name: statistics.median(seconds) for name, seconds in times.items()}
            ratio = f", {medians['other'] / medians['this']:.2f} times the rate of the other" if options.other else ""
            print(f"{kind}, {form}: {EDGES / medians['this'] / 1e6:.2f} million edges a second of a processor{ratio}")


if __name__ == "__main__":
    main()
