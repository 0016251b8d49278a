"""One table in pandas, polars, Arrow, Parquet and CSV gives one store, or an error that says what differs."""

from __future__ import annotations

import datetime
from csv import QUOTE_NONNUMERIC
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
pd = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

from pyarrow import csv, feather, parquet  # noqa: E402
from tables import checksums  # noqa: E402

from freshgo import Table, convert_tables, errors  # noqa: E402

SMALL: dict[str, Any] = {"memory": "128MiB", "progress": False, "overwrite": True}
NAN = float("nan")
DAY, MOMENT = datetime.date(2020, 3, 31), datetime.datetime(1969, 12, 31, 23, 59, 59, 5)

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "ints": (pa.array([2**53 + 1, -7, 0]), {"tensors": {"v": "v"}}),
    "ints as features": (pa.array([2**31, -7, 0]), {"features": "v"}),
    "floats": (pa.array([0.1, -2.5e-7, 1e20]), {"features": "v"}),
    "floats as a tensor": (pa.array([0.1, -2.5e-7, 1e20]), {"tensors": {"v": "v"}}),
    "NaN": (pa.array([0.5, NAN, 2.25]), {"features": "v", "nulls": -1}),
    "NaN that stays": (pa.array([0.5, NAN, 2.25]), {"tensors": {"v": "v"}, "nulls": NAN}),
    "nulls": (pa.array([5, None, 7]), {"label": "v", "nulls": -1}),
    "strings": (pa.array(["NA", "007", 'a,"b"\r\n']), {"tensors": {"v": "v"}}),
    "strings and null": (pa.array(["", None, "é"]), {"tensors": {"v": "v"}, "nulls": {"v": "none"}}),
    "bools": (pa.array([True, False, True]), {"tensors": {"v": "v"}}),
    "bools as features": (pa.array([True, False, True]), {"features": "v"}),
    "dates": (pa.array([DAY, DAY, DAY]), {"time": "v"}),
    "timestamps": (pa.array([MOMENT, MOMENT, MOMENT]), {"time": "v"}),
    "categories": (pa.array(["b", "a", "b"]).dictionary_encode(), {"tensors": {"v": "v"}}),
    "lists": (pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), {"features": "v"}),
}


def sources(table: Any, folder: Path) -> dict[str, Any]:
    """A table in every form."""
    nullable = {pa.int64(): pd.Int64Dtype()}.get
    found: dict[str, Any] = {"arrow": table, "polars": polars.from_arrow(table)}
    found["pandas"] = table.to_pandas(types_mapper=nullable)
    parquet.write_table(table, folder / "a.parquet")
    feather.write_feather(table, str(folder / "a.feather"))
    found |= {"parquet": folder / "a.parquet", "feather": folder / "a.feather"}
    if not pa.types.is_list(table.schema.field("v").type):
        flat = table
        if pa.types.is_dictionary(table.schema.field("v").type):
            flat = table.set_column(1, "v", table["v"].cast(pa.string()))
        csv.write_csv(flat, folder / "arrow.csv")
        found["polars"].write_csv(folder / "polars.tsv", separator="\t")
        found["pandas"].to_csv(folder / "pandas.csv", index=False, na_rep="\\N", quoting=QUOTE_NONNUMERIC)
        found |= {"csv": folder / "arrow.csv", "tsv": folder / "polars.tsv", "pandas.csv": folder / "pandas.csv"}
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("keys", [[3, 1, 2], ["3", "01", "x"]], ids=["integers", "text"])
def test_every_form_gives_the_same_store(case: str, keys: list[Any], tmp_path: Path) -> None:
    values, how = CASES[case]
    ends = Table(pa.table({"s": keys[:1], "d": keys[1:2]}), src="s", dst="d")
    stores = {}
    for form, source in sources(pa.table({"id": keys, "v": values}), tmp_path).items():
        text: dict[str, Any] = {"null": {"v": "\\N"}} if form == "pandas.csv" else {}
        if form in ("csv", "tsv") and case.startswith("NaN"):
            with pytest.raises(errors.InvalidArgumentError, match=r"'[nN]a[nN]'.*null="):
                convert_tables(Table(source, id="id", **how), ends, tmp_path / "g", **SMALL)
            text = {"null": ["nan", "NaN"]}
        stores[form] = checksums(convert_tables(Table(source, id="id", **how, **text), ends, tmp_path / "g", **SMALL))
    assert len(stores) == (5 if case == "lists" else 8)
    for form, store in stores.items():
        assert store == stores["arrow"], form


def test_a_missing_number_is_one_error_everywhere(tmp_path: Path) -> None:
    ends = Table(pa.table({"s": [3], "d": [1]}), src="s", dst="d")
    for number, values in enumerate((pa.array([0.5, NAN, 2.25]), pa.array([[0.5], [NAN], [2.25]]))):
        (tmp_path / str(number)).mkdir()
        for source in sources(pa.table({"id": [3, 1, 2], "v": values}), tmp_path / str(number)).values():
            said = r"nodes, column 'v', (row 1 |line 3 ).*(null|NaN|'nan'|'NaN'|N'|in the list), expected"
            with pytest.raises(errors.InvalidArgumentError, match=said):
                convert_tables(Table(source, id="id", features="v"), ends, tmp_path / "g", **SMALL)


def test_frames_that_cannot_be_told_apart(tmp_path: Path) -> None:
    ends = Table(pa.table({"s": [1], "d": [1]}), src="s", dst="d")
    mixed = pd.DataFrame({"id": [1, "1"]})
    with pytest.raises(errors.DTypeError, match="nodes, column 'id', holds values of several kinds"):
        convert_tables(Table(mixed, id="id"), ends, tmp_path / "g", **SMALL)
    twice = [pd.DataFrame([[1, 2, 3]], columns=["id", "v", "v"]), pa.table([[1], [2], [3]], names=["id", "v", "v"])]
    parquet.write_table(twice[1], tmp_path / "twice.parquet")
    (tmp_path / "twice.csv").write_text("id,v,v\n1,2,3\n")
    for source in (*twice, tmp_path / "twice.parquet", tmp_path / "twice.csv"):
        with pytest.raises(errors.InvalidArgumentError, match="has 2 columns 'v'"):
            convert_tables(Table(source, id="id", features="v"), ends, tmp_path / "g", **SMALL)
    cases = pa.table({"V": [1.0], "v": [2.0], "id": [1]})
    parquet.write_table(cases, tmp_path / "cases.parquet")
    csv.write_csv(cases, tmp_path / "cases.csv")
    for source in (cases, cases.to_pandas(), polars.from_arrow(cases), tmp_path / "cases.csv"):
        assert convert_tables(Table(source, id="id", features="v"), ends, tmp_path / "g", **SMALL)["x"].tolist() == [
            [2.0]
        ]
    with pytest.raises(errors.InvalidArgumentError, match="another column differs from 'v' in case alone"):
        convert_tables(Table(tmp_path / "cases.parquet", id="id", features="v"), ends, tmp_path / "g", **SMALL)
