"""Conversion of an Arrow column to Python rows for an encoder. Pure.

The target type comes from the schema. Fields are matched by name. Dates, timestamps and durations become integers in
the unit of the target type; timestamps are truncated to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.formats.problems import EncodeError, among


class Encoder(Protocol):
    """Encodes rows in one format. `encode` raises EncodeError."""

    row_type: pa.DataType

    def encode(self, row: Any) -> bytes: ...


FAMILIES: tuple[tuple[str, Callable[[pa.DataType], bool]], ...] = (
    ("boolean", pa.types.is_boolean),
    ("integer", pa.types.is_integer),
    ("floating point", pa.types.is_floating),
    ("decimal", pa.types.is_decimal),
    ("string", lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind)),
    (
        "binary",
        lambda kind: (
            pa.types.is_binary(kind)
            or pa.types.is_large_binary(kind)
            or pa.types.is_fixed_size_binary(kind)
        ),
    ),
    ("date", pa.types.is_date),
    ("timestamp", lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None),
    ("timestamp_ntz", lambda kind: pa.types.is_timestamp(kind) and kind.tz is None),
    ("interval", pa.types.is_duration),
    ("array", lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind)),
    ("map", pa.types.is_map),
    ("struct", pa.types.is_struct),
)
WIDER = {("integer", "floating point"), ("integer", "decimal")}
"""Types that may be converted, besides equal ones. A value that does not fit is an error."""
TIMES = ("date", "timestamp", "timestamp_ntz", "interval")


def encode_column(column: pa.Array, encoder: Encoder) -> pa.Array:
    """Encode all rows of a column. A null row stays null. Raises EncodeError."""
    rows = conform(column, encoder.row_type, "the column").to_pylist(maps_as_pydicts="lossy")
    return pa.array([None if row is None else encoder.encode(row) for row in rows], pa.binary())


def conform(column: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    """Convert a column to the type of the schema. Fields that the column lacks are left out. Raises EncodeError."""
    if pa.types.is_null(column.type):
        return column
    found, wanted = family(column.type), family(target)
    if found != wanted and (found, wanted) not in WIDER:
        raise EncodeError(f"{name} is {found}, but the schema needs {wanted}; cast it")
    if wanted == "struct":
        return conform_struct(column, target, name)
    if wanted == "array":
        items = conform(column.values, target.value_type, f"an element of {name}")
        return pa.ListArray.from_arrays(
            column.offsets.cast(pa.int32()), items, mask=nulls_of(column)
        )
    if wanted == "map":
        keys = conform(column.keys, target.key_type, f"a key of {name}")
        items = conform(column.items, target.item_type, f"a value of {name}")
        return pa.MapArray.from_arrays(column.offsets, keys, items, mask=nulls_of(column))
    try:
        converted = column.cast(target, safe=wanted not in TIMES)
    except pa.ArrowInvalid as error:
        raise EncodeError(f"a value of {name} does not fit the schema: {error}") from None
    if wanted in TIMES:
        return converted.cast(pa.int32() if wanted == "date" else pa.int64())
    return converted


def conform_struct(column: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    wanted = {
        target.field(index).name: target.field(index).type for index in range(target.num_fields)
    }
    names = [column.type.field(index).name for index in range(column.type.num_fields)]
    if extra := [each for each in names if each not in wanted]:
        known = among(list(wanted))
        raise EncodeError(
            f"{name} has the field {extra[0]}, which is not in the schema; the schema has {known}"
        )
    if not names:
        return pa.array([None if not row.is_valid else {} for row in column], pa.struct([]))
    fields = [
        conform(pc.struct_field(column, each), wanted[each], f"field {each}") for each in names
    ]
    return pa.StructArray.from_arrays(fields, names, mask=pc.is_null(column))


def nulls_of(column: pa.Array) -> pa.Array | None:
    """Return the mask of null lists. `from_arrays` accepts one only for an array that is not a slice."""
    return pc.is_null(column) if column.null_count else None


def family(kind: pa.DataType) -> str:
    return next((name for name, matches in FAMILIES if matches(kind)), str(kind))
