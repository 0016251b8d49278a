"""What the text of a column is: integers, numbers, booleans, dates, or text. All values decide, and none is changed.

Values come in arrays of pyarrow strings and go on as arrays of the type that all of them had so far. A type gives way
to another only where no value is lost: an integer that is written as plain decimal digits becomes its text again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from freshgo.errors import InvalidArgumentError

Role = Literal["key", "text", "number", "time", "any"]
"""What a column is used for: ``text`` stays text, and ``any`` is a column of numbers or of categories."""

MISSING = (
    *("NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "NAN", "-nan", "NULL", "Null", "null", "None", "none", "-"),
    *("\\N", "inf", "Inf", "INF", "-inf", "-Inf", "-INF", "Infinity", "-Infinity"),
)
"""What programs write for a missing value, or for a number without end.
Among numbers they are an error that asks for ``null=``."""

ZONED = "TIMESTAMP WITH TIME ZONE"

_TYPES: dict[str, tuple[str, ...]] = {
    "key": ("BIGINT", "VARCHAR"),
    "text": ("VARCHAR",),
    "number": ("BIGINT", "DOUBLE", "BOOLEAN"),
    "time": ("BIGINT", "DATE", "TIMESTAMP", ZONED),
    "any": ("BIGINT", "VARCHAR"),
}
"""The types that a column may have, the first that all its values have."""

_WIDER = {("BIGINT", "VARCHAR"), ("BIGINT", "DOUBLE"), ("DATE", "TIMESTAMP")}
"""Types, and types that hold all their values."""

_NUMBER = r"^[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$"
"""A number without leading zeros: where text is possible too, 007 is text."""

_COMMA = r"^[-+]?[0-9]+(,[0-9]+)?$"
"""A number with a decimal comma, or an integer."""

_DAY = r"^\d{4}-\d{2}-\d{2}"
_CLOCK = r"[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?"
_DATES = {
    "DATE": _DAY + "$",
    "TIMESTAMP": _DAY + "(" + _CLOCK + ")?$",
    ZONED: _DAY + _CLOCK + r"(Z|[+-]\d{2}(:?\d{2})?)$",
}

_BOOLS = (("true", "false"), ("True", "False"), ("TRUE", "FALSE"))

_PROBE = 64
"""Values that are tried before all others: a cast that fails takes five times as long as one that does not."""


def arrow_type(name: str) -> Any:
    """Return pyarrow's type of the arrays of a type of DuckDB."""
    import pyarrow as pa

    zoned = pa.timestamp("us", "UTC")
    types = {"BIGINT": pa.int64(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_(), "DATE": pa.date32(), ZONED: zoned}
    return {**types, "TIMESTAMP": pa.timestamp("us")}.get(name, pa.string())


class BadTextError(Exception):
    """A value that cannot be: its place in the array, and what is wrong."""

    def __init__(self, place: int, what: str) -> None:
        super().__init__(what)
        self.place, self.what = place, what


@dataclasses.dataclass
class Column:
    """A column of text, and what its values are so far."""

    name: str
    role: Role
    decimal: str = "."
    nulls: tuple[str, ...] = ()
    """Texts that stand for null."""
    type: str = ""
    """DuckDB's name of the type of all values so far, empty as long as they are null."""
    _kinds: set[str] = dataclasses.field(default_factory=lambda: {"number", "comma", "BOOLEAN", *_DATES})
    """What all values of a column of the role ``any`` may be beside text; ``comma``: numbers with a decimal comma."""
    _numbers: bool = False
    """Whether a value is a number."""
    _point: bool = False
    """Whether a number has a decimal point."""
    _missing: str = ""
    """The first of ``MISSING`` and where it stands, in words."""
    _odd: str = ""
    """The first number that is no plain integer and has no point, and where it stands."""
    _endless: str = ""
    """The first number that is too large for float64, and where it stands."""
    _comma: str = ""
    """The first number with a comma, and where it stands."""

    def convert(self, strings: Any, where: Callable[[int], str]) -> Any:
        """Return values as an array of ``type``, which may be another one from now on. ``where`` says in words where
        the value with some place stands.

        Raises:
            BadTextError: the role does not take a value.
        """
        import pyarrow as pa

        strings = self._nulled(strings)
        if strings.null_count == len(strings):
            return pa.nulls(len(strings), arrow_type(self.type or "BIGINT"))
        found = self._converted(strings)
        if found is None:
            raise self._bad(strings)
        self.type, array = found
        if self.role == "any" and self.type == "VARCHAR" and self._kinds:
            self._observe(strings, where)
        elif self.role == "any":
            self._numbers = self._numbers or self.type == "BIGINT"
        return array

    def decided(self, fill: object) -> str:
        """Return the type of the whole column. ``fill`` is what stands for nulls, None if nothing does.

        Raises:
            InvalidArgumentError: the values are numbers in part, or could be text; the message says what to do.
        """
        if not self.type:
            numbers = {"key": "BIGINT", "number": "BIGINT", "time": "BIGINT"}
            filled = "DOUBLE" if isinstance(fill, float) else "BIGINT" if isinstance(fill, int) else "VARCHAR"
            return numbers.get(self.role, filled)
        if self.role != "any" or self.type != "VARCHAR":
            return self.type
        if "number" in self._kinds and self._numbers:
            if self._missing:
                raise InvalidArgumentError(
                    f"{self._missing} among numbers: null= of the Table reads it as missing, "
                    f"types={{{self.name!r}: 'DOUBLE'}} as NaN or infinity, types={{{self.name!r}: 'VARCHAR'}} makes "
                    "all values categories"
                )
            if self._endless:
                raise InvalidArgumentError(
                    f"{self._endless} is too large for a number: types={{{self.name!r}: 'VARCHAR'}} makes all values "
                    "categories"
                )
            if not self._point:
                raise InvalidArgumentError(
                    f"{self._odd} may be a number or text: types={{{self.name!r}: 'DOUBLE'}} reads numbers, "
                    f"types={{{self.name!r}: 'VARCHAR'}} categories"
                )
            return "DOUBLE"
        if "comma" in self._kinds and self._comma:
            raise InvalidArgumentError(
                f"{self._comma} may be a number or text: decimal=',' of the Table reads numbers, "
                f"types={{{self.name!r}: 'VARCHAR'}} categories"
            )
        return next((kind for kind in ("BOOLEAN", *_DATES) if kind in self._kinds), "VARCHAR")

    def _nulled(self, strings: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self.nulls:
            return strings
        return pc.if_else(pc.is_in(strings, pa.array(self.nulls)), pa.scalar(None, pa.string()), strings)

    def _converted(self, strings: Any) -> tuple[str, Any] | None:
        """Return the first type that the values have together with those before, and an array of it."""
        for name in _TYPES[self.role]:
            if self.type in ("", name) or (self.type, name) in _WIDER:
                array = self._array(name, strings)
                if array is not None:
                    return name, array
        return None

    def _array(self, name: str, strings: Any) -> Any:
        """Return values as an array of a type, None where one of them is not of it."""
        if len(strings) > _PROBE and self._whole(name, strings.slice(0, _PROBE)) is None:
            return None
        return self._whole(name, strings)

    def _whole(self, name: str, strings: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        if name == "VARCHAR":
            return strings
        if name == "BOOLEAN":
            styles = [style for style in _BOOLS if _all(pc.is_in(strings.drop_null(), pa.array(style)))]
            return pc.equal(strings, styles[0][0]) if styles else None
        if name in _DATES and not _all(pc.match_substring_regex(strings, _DATES[name])):
            return None
        try:
            array = (self._dotted(strings) if name == "DOUBLE" else strings).cast(arrow_type(name))
        except pa.ArrowInvalid:
            return None
        if name == "BIGINT":
            return array if array.cast(pa.string()).equals(strings) else None
        return None if name == "DOUBLE" and not _all(pc.is_finite(array)) else array

    def _dotted(self, strings: Any) -> Any:
        """Return numbers with a point."""
        import pyarrow.compute as pc

        if self.decimal == ".":
            return strings
        return pc.replace_substring(pc.replace_substring(strings, ".", "?"), self.decimal, ".")

    def _bad(self, strings: Any) -> BadTextError:
        good, bad = 0, len(strings)  # the first ``good`` values convert together, the first ``bad`` do not
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if self._fits(strings.slice(0, middle)) else (good, middle)
        value = strings[good].as_py()
        if self.role == "time":
            before = ", all values of one kind" if self.type or good else ""
            what = (
                f"{value!r}, expected whole numbers or dates as 2020-03-31 or 2020-03-31 23:59:59{before} "
                "(date_format= of the Table, such as '%d/%m/%Y', says how other dates are written)"
            )
        else:
            what = f"{value!r}, expected a number{self._remedy(value)}"
        return BadTextError(good, what)

    def _fits(self, strings: Any) -> bool:
        return strings.null_count == len(strings) or self._converted(strings) is not None

    def _remedy(self, value: str) -> str:
        if value.lstrip("+-").lower() in ("inf", "infinity"):
            return f" (types={{{self.name!r}: 'DOUBLE'}} takes it)"
        if value in MISSING:
            return f" (null={value!r} of the Table reads it as missing)"
        if value != value.strip() and self._whole_number(value.strip()):
            return " without spaces around it"
        if any(value in style for style in _BOOLS) or self._whole_number(value):
            return ", or all values true or false, written in one way"
        if self.decimal == "." and self._whole_number(value.replace(",", ".")):
            return f" (decimal=',' of the Table reads it as {value.replace(',', '.')})"
        if self.decimal == "," and self._whole_number(value.replace(".", ",")):
            return " (decimal=',' of the Table takes no point before the fraction)"
        thousands = "." if self.decimal == "," else ","
        if self._whole_number(value.replace(thousands, "").replace(" ", "")):
            return " without marks between thousands"
        return " (tensors= stores text as numbers of categories)"

    def _whole_number(self, value: str) -> bool:
        import pyarrow as pa

        return self._whole("DOUBLE", pa.array([value])) is not None

    def _observe(self, strings: Any, where: Callable[[int], str]) -> None:
        """Find out what some values of a column of the role ``any`` are beside text."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._numbers:
            self._kinds &= {"number", "comma"}
        for kind in self._kinds - {"number", "comma"}:
            if self._array(kind, strings) is None:
                self._kinds.discard(kind)
        if "comma" in self._kinds:
            self._observe_commas(strings, where)
        if "number" not in self._kinds:
            return
        numbers = pc.match_substring_regex(self._dotted(strings), _NUMBER)
        missing = pc.is_in(strings, pa.array(MISSING))
        if not _all(pc.or_(numbers, missing)):
            self._kinds.discard("number")
            return
        if not self._missing and pc.any(missing).as_py():
            place = pc.index(missing, True).as_py()
            self._missing = f"{where(place)}: {strings[place].as_py()!r}"
        self._numbers = self._numbers or bool(pc.any(numbers).as_py())
        if not self._endless:
            endless = pc.is_inf(pc.if_else(missing, None, self._dotted(strings)).cast(pa.float64()))
            if pc.any(endless).as_py():
                place = pc.index(endless, True).as_py()
                self._endless = f"{where(place)}: {strings[place].as_py()!r}"
        points = pc.match_substring(strings, self.decimal)
        self._point = self._point or bool(pc.any(pc.and_(numbers, points)).as_py())
        odd = pc.and_not(pc.and_not(numbers, points), pc.match_substring_regex(strings, r"^(0|-?[1-9][0-9]{0,17})$"))
        if not self._odd and pc.any(odd).as_py():
            place = pc.index(odd, True).as_py()
            self._odd = f"{where(place)}: {strings[place].as_py()!r}"

    def _observe_commas(self, strings: Any, where: Callable[[int], str]) -> None:
        import pyarrow.compute as pc

        if self.decimal == "," or not _all(pc.match_substring_regex(strings, _COMMA)):
            self._kinds.discard("comma")
        elif not self._comma and pc.any(commas := pc.match_substring(strings, ",")).as_py():
            place = pc.index(commas, True).as_py()
            self._comma = f"{where(place)}: {strings[place].as_py()!r}"


def _all(found: Any) -> bool:
    """Whether all values that are not null hold."""
    import pyarrow.compute as pc

    return pc.all(found).as_py() is not False
