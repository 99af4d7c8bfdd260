"""Decoding of a column of bytes to an Arrow column. Pure.

A `Decoder` decodes one record and builds the column. In mode FAILFAST the first invalid record raises DecodeError. In
mode PERMISSIVE an invalid record becomes null. A null record is null in both modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import ConfigError
from barnabas.formats.problems import DecodeError, first_bytes

FAILFAST, PERMISSIVE = "FAILFAST", "PERMISSIVE"


class Decoder(Protocol):
    """Decodes records of one format. `decode` raises DecodeError; `to_arrow` raises ArrowInvalid."""

    def decode(self, data: bytes) -> Any: ...
    def to_arrow(self, values: Sequence[Any]) -> pa.Array: ...


def check_mode(mode: object) -> str:
    """Return the mode in upper case. Raises ConfigError."""
    known = str(mode).upper()
    if known not in (FAILFAST, PERMISSIVE):
        raise ConfigError("mode", f"{mode!r} is unknown; choose {FAILFAST} or {PERMISSIVE}")
    return known


def decode_column(column: pa.Array, decoder: Decoder, mode: str) -> pa.Array:
    """Decode all records of a column. Raises DecodeError, ConfigError if the column has another type."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.binary())
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        raise ConfigError("column", f"must be binary, not {column.type}")
    records: list[bytes | None] = column.to_pylist()
    values: list[Any] = []
    for record in records:
        try:
            values.append(None if record is None else decoder.decode(record))
        except DecodeError as error:
            if mode == FAILFAST:
                assert record is not None
                raise explained(error, record) from None
            values.append(None)
    try:
        return decoder.to_arrow(values)
    except (pa.ArrowInvalid, OverflowError):
        # A value that Spark cannot represent, for example a timestamp after the year 294247.
        return pa.concat_arrays(
            convert_alone(record, value, decoder, mode)
            for record, value in zip(records, values, strict=True)
        )


def convert_alone(record: bytes | None, value: Any, decoder: Decoder, mode: str) -> pa.Array:
    try:
        return decoder.to_arrow([value])
    except (pa.ArrowInvalid, OverflowError) as error:
        if mode == FAILFAST:
            assert record is not None
            raise explained(DecodeError(f"a value is out of range: {error}"), record) from None
        return decoder.to_arrow([None])


def explained(error: DecodeError, record: bytes) -> DecodeError:
    """Return the error with the first bytes of the record and the next step."""
    hint = "mode='PERMISSIVE' decodes invalid records to null"
    return DecodeError(
        f"cannot decode a record: {error}; first bytes: {first_bytes(record)}; {hint}"
    )


def columns_to_arrow(values: Sequence[Any], arrow_type: pa.DataType) -> pa.Array:
    """Build an Arrow array. Rows of a struct are dicts.

    Structs are built field by field, which is three times as fast as `pa.array` of dicts.
    """
    if not pa.types.is_struct(arrow_type) or not arrow_type.num_fields:
        return pa.array(values, arrow_type)
    fields = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
    columns = []
    for field in fields:
        name = field.name
        column = [None if value is None else value[name] for value in values]
        columns.append(columns_to_arrow(column, field.type))
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)


def cast_times(column: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Cast timestamps within a column to microseconds. Nanoseconds are truncated; an overflow raises ArrowInvalid."""
    if column.type == arrow_type:
        return column
    options = pc.CastOptions(target_type=arrow_type, allow_time_truncate=True)
    return pc.cast(column, options=options)
