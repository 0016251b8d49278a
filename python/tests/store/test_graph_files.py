"""Graphs in files of MatrixMarket, GraphML, GML, GEXF and Pajek become the store that their entries or edges would."""

from __future__ import annotations

import bz2
import gzip
import importlib
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seeds import seed as seed_of

networkx = pytest.importorskip("networkx")
pytest.importorskip("scipy")

from tables import checksums  # noqa: E402

from freshgo import Store, cli, convert, errors  # noqa: E402
from freshgo._sources.graph_files import FORMATS  # noqa: E402
from freshgo._sources.ogb_names import KNOWN  # noqa: E402
from freshgo._sources.recognise import NAMES, SOURCES  # noqa: E402

SMALL: dict[str, Any] = {"memory": "64MiB", "progress": False}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(seed_of(0))


def entries_of(field: str, symmetry: str, rng: np.random.Generator) -> list[tuple[int, int, Any]]:
    """Entries of a matrix of 30 rows, each once, below the diagonal where the matrix is symmetric."""
    places = {(int(i), int(j)) for i, j in rng.integers(30, size=(120, 2)) if symmetry == "general" or i > j}
    places |= {(5, 5)} if symmetry == "symmetric" else set()
    value = {"pattern": lambda: None, "integer": lambda: int(rng.integers(-9, 10)), "real": lambda: float(rng.random())}
    return [(i, j, value[field]()) for i, j in sorted(places)]


def written(entries: list[tuple[int, int, Any]], field: str, symmetry: str) -> str:
    lines = [f"%%MatrixMarket matrix coordinate {field} {symmetry}", "% a comment", f"30 30 {len(entries)}"]
    return "\n".join([*lines, *(f"{i + 1} {j + 1} {'' if v is None else repr(v)}" for i, j, v in entries)]) + "\n"


@pytest.mark.parametrize("packed", ["", ".gz", ".bz2"])
@pytest.mark.parametrize(
    ("field", "symmetry"),
    [("pattern", "general"), ("pattern", "symmetric")]
    + [(f, s) for f in ("integer", "real") for s in ("general", "symmetric", "skew-symmetric")],
)
def test_matrix_market(field: str, symmetry: str, packed: str, tmp_path: Path, rng: np.random.Generator) -> None:
    entries = entries_of(field, symmetry, rng)
    path = tmp_path / f"a.mtx{packed}"
    path.write_bytes(
        {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}[packed](written(entries, field, symmetry).encode())
    )
    sign = -1 if symmetry == "skew-symmetric" else 1
    want = {(i, j): v for i, j, v in entries}
    if symmetry != "general":
        want |= {(j, i): v if v is None or i == j else sign * v for i, j, v in entries}
    with convert(path, tmp_path / "g", **SMALL) as store:
        assert store.num_nodes == 30 and store.num_edges == len(want)
        weights = store["edge_weight"].tolist() if field != "pattern" else [None] * len(want)
        got = dict(zip(edges_of(store), weights, strict=True))
        assert got == want
        assert list(store.tensors) == ([] if field == "pattern" else ["edge_weight"])


def edges_of(store: Store) -> list[tuple[int, int]]:
    """The edges of a store in the order of its tensors."""
    import torch

    from freshgo import Loader

    (batch,) = Loader(store, [-1], batch_size=store.num_nodes)
    pairs = batch.n_id[batch.edge_index]
    order = torch.argsort(batch.e_id)
    return [tuple(pair) for pair in pairs[:, order].T.tolist()]


_BANNER = "%%MatrixMarket matrix coordinate"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (
            "%%MatrixMarket matrix coordinate pattern general\n3 3 3\n1 2\n2 3\n",
            "not a whole file of MatrixMarket: Truncated",
        ),
        ("%%MatrixMarket matrix coordinate pattern general\n3 3 1\n4 1\n", "Line 3: Row index out of bounds"),
        ("hello\n", "not a whole file of MatrixMarket"),
        *(
            (
                f"{_BANNER} {field} general\n% of\n3 3 2\n1 2{good}\n2 1{bad}\n",
                f"line 5: '2 1{re.escape(bad)}', expected {kind}",
            )
            for field, good, bads, kind in (
                (
                    "real",
                    " 1e-3",
                    (" 1,5", " 0x10", " 1d5", " 1.5.2", " 1 2", " 1e", " 1_0"),
                    "a row, a column and a number",
                ),
                ("integer", " 7", (" 1.5", " 1e3", " 1 2"), "a row, a column and an integer"),
                ("pattern", "", (" 1",), "a row and a column"),
            )
            for bad in bads
        ),
        (f"{_BANNER} real general\n3 3 1\n2 1 1e400\n", "line 3: 1e400 is too large for float64"),
        ("", "not a whole file of MatrixMarket"),
        ("%%MatrixMarket matrix coordinate complex general\n3 3 1\n2 1 5.5 1\n", "the entries are complex, expected"),
        ("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n", "the matrix is dense"),
        ("%%MatrixMarket matrix coordinate pattern general\n3 4 1\n2 1\n", r"must be square, got shape \[3, 4\]"),
    ],
)
def test_matrix_market_that_is_none(text: str, wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "a.mtx"
    path.write_text(text)
    with pytest.raises(errors.FreshgoError, match=rf"a\.mtx.*{wrong}"):
        convert(path, tmp_path / "g", **SMALL)
    path.with_suffix(".mtx.gz").write_bytes(
        gzip.compress(b"%%MatrixMarket matrix coordinate pattern general\n3 3 1\n")[:-12]
    )
    with pytest.raises(errors.FormatError, match=r"a\.mtx\.gz: not a whole file of MatrixMarket"):
        convert(path.with_suffix(".mtx.gz"), tmp_path / "g", **SMALL)
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("kind", ["Graph", "DiGraph"])
@pytest.mark.parametrize("form", ["graphml", "gml", "gexf", "pajek"])
def test_graphs_of_networkx(form: str, kind: str, packed: str, tmp_path: Path, rng: np.random.Generator) -> None:
    """Names, weights and attributes, as the graph itself would be converted."""
    graph = getattr(networkx, kind)()
    for i in rng.permutation(40).tolist():
        graph.add_node(f"n\u00f6 {i}", **({} if form == "pajek" else {"score": float(i) / 4, "size": i}))
    for a, b in rng.integers(40, size=(150, 2)).tolist():
        graph.add_edge(f"n\u00f6 {a}", f"n\u00f6 {b}", weight=float(a + b / 64))
    path = tmp_path / f"a.{'net' if form == 'pajek' else form}{packed}"
    getattr(networkx, f"write_{form}")(graph, path)
    want = convert(graph, tmp_path / "want", **SMALL)
    with warnings.catch_warnings():  # of labels and ids, which are text
        warnings.simplefilter("ignore", UserWarning)
        got = convert(path, tmp_path / "got", **SMALL)
    if form == "pajek":  # which adds the places of nodes in a picture
        assert set(got.tensors) == {"pos", "edge_weight"} and got["pos"].shape == (40, 2)
        assert got.ids().keys(range(40)) == want.ids().keys(range(40))
        assert sorted(zip(edges_of(got), got["edge_weight"].tolist(), strict=True)) == sorted(
            zip(edges_of(want), want["edge_weight"].tolist(), strict=True)
        )
    else:
        assert checksums(got) == checksums(want)


@pytest.mark.parametrize("packed", ["", ".gz", ".bz2"])
@pytest.mark.parametrize("form", ["graphml", "gml", "gexf", "pajek"])
def test_a_file_that_memory_cannot_hold(form: str, packed: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{form}{packed}"
    getattr(networkx, f"write_{form}")(networkx.gnm_random_graph(200, 4000, seed=1, directed=True), path)
    whole = tmp_path / f"b.{form}"
    getattr(networkx, f"write_{form}")(networkx.gnm_random_graph(200, 4000, seed=1, directed=True), whole)
    least = FORMATS[form].memory * whole.stat().st_size
    with pytest.raises(errors.BudgetError, match=rf"a\.{form}.* too small: networkx reads .* convert_tables") as raised:
        convert(path, tmp_path / "g", memory=least - 1, progress=False)
    assert raised.value.minimum == least and not (tmp_path / "g").exists()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        convert(path, tmp_path / "g", memory=least, progress=False).close()


def test_gml_without_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.gml"
    path.write_text("graph [ directed 1 node [ id 5 value 1 ] node [ id 7 value 2 ] edge [ source 5 target 7 ] ]")
    with convert(path, tmp_path / "g", **SMALL) as store:
        assert store.ids().keys([0, 1]).tolist() == [5, 7] and store["value"].tolist() == [1, 2]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("a.graphml", '<graphml><graph><node id="a"/>', "not a whole file of GraphML: no element found"),
        ("a.gml", "graph [ node [ id 1", "not a whole file of GML: "),
        ("a.gexf", "<gexf>", "not a whole file of GEXF: "),
        ("a.graphml.gz", "no gzip", "not a whole file of GraphML: Not a gzipped file"),
        ("a.net", "1 2\n2 3\n", r"expected a line \*Vertices"),
        ("a.net", '*Vertices 3\n1 "A"\n2 "B"\n3 "A"\n*Arcs\n1 2\n', "NetworkX makes 2 nodes of its 3 vertices"),
        ("a.net", '*Vertices 2\n1 "A"\n2 "B"\n*Arcs\n1 2\n*Edges\n1 2\n', r"it has \*Arcs and \*Edges"),
        ("a.net", '*Vertices 2\n1 "A"\n2 "B"\n*Arcslist\n1 2\n', r"does not read the section \*arcslist"),
        ("a.net", "*Vertices 2\n*Arcs\n1 2\n", "not a whole file of Pajek"),
    ],
)
def test_graphs_that_are_damaged(name: str, text: str, wrong: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(errors.FormatError, match=rf"{name}: .*{wrong}|{name}: {wrong}"):
        convert(tmp_path / name, tmp_path / "g", **SMALL)
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize(("name", "library"), [("a.mtx", "scipy"), ("a.gml.gz", "networkx")])
def test_a_package_that_is_missing(name: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def missing(wanted: str, *args: Any) -> Any:
        if wanted.partition(".")[0] == library:
            raise ImportError(f"No module named {wanted!r}")
        return real(wanted, *args)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(errors.LibraryError, match=rf"{name}: .* needs {library}: pip install {library}"):
        convert(tmp_path / name, tmp_path / "g", **SMALL)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "a.csv",
            r"a\.csv: convert_tables reads tables: freshgo\.convert_tables\(None, freshgo\.Table\('.*a\.csv', src=",
        ),
        ("a.jsonl.gz", "convert_tables reads tables"),
        ("a.toml", r"freshgo convert --tables '.*a\.toml' STORE"),
        ("a.graph", r"METIS .* source='csr'"),
        ("a.pt", "torch.load reads it"),
        ("a.mat", "scipy.io.loadmat reads it"),
        ("a.xyz", r"a\.xyz: convert reads \.npy, \.npz, \.mtx, .*\.gexf, .*convert_tables"),
    ],
)
def test_files_that_convert_does_not_read(
    name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(errors.StoreNotFoundError, match="no such file or directory"):
        convert(tmp_path / name, tmp_path / "g", **SMALL)
    (tmp_path / name).write_text("1 2\n")
    with pytest.raises(errors.InvalidArgumentError, match=said):
        convert(tmp_path / name, tmp_path / "g", **SMALL)
    assert cli.main(["convert", str(tmp_path / name), str(tmp_path / "g")]) == 1
    assert str(tmp_path / name) in capsys.readouterr().err


def test_a_format_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n")
    with convert(tmp_path / "a.txt", tmp_path / "g", source="mtx", **SMALL) as store:
        assert edges_of(store) == [(0, 1)]
    with pytest.raises(errors.InvalidArgumentError, match="source='gml' expects a path of a file in GML, got"):
        convert({"edge_index": [[0], [1]]}, tmp_path / "h", source="gml", **SMALL)


def test_what_source_may_be() -> None:
    """The choices that editors show are the kinds that there are."""
    assert set(NAMES) == {kind.name for kind in SOURCES if kind.name} | set(KNOWN)
