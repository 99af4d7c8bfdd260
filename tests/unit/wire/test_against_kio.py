"""kio, a codec that others generated from the protocol's own description, writes and reads the same bytes."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from importlib import import_module
from io import BytesIO
from random import Random
from re import sub
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from barnabas.model import ZERO_ID
from barnabas.wire.codec import Message, decode, encode
from tests.unit.wire.random_messages import ALL, name_of, random_message


@pytest.mark.parametrize(("cls", "version"), ALL, ids=name_of)
def test_kio_writes_the_bytes_we_write_and_we_read_what_it_wrote(
    cls: type[Message], version: int
) -> None:
    theirs = kio_class(cls, version)
    for seed in range(15):
        ours = random_message(Random(seed), cls, version)
        buffer = BytesIO()
        entity_writer(theirs)(buffer, to_kio(ours, theirs))
        golden = buffer.getvalue()
        assert decode(cls, version, golden) == ours
        assert encode(ours, version) == golden


@pytest.mark.parametrize(("cls", "version"), ALL, ids=name_of)
def test_kio_reads_what_we_write(cls: type[Message], version: int) -> None:
    theirs = kio_class(cls, version)
    for seed in range(100, 105):
        ours = random_message(Random(seed), cls, version)
        data = encode(ours, version)
        read, size = entity_reader(theirs)(data, 0)
        assert size == len(data)
        assert read == to_kio(ours, theirs)


def kio_class(cls: type[Message], version: int) -> Any:
    kind = "request" if cls.__name__.endswith("Request") else "response"
    family = sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix(kind.title())).lower()
    return getattr(import_module(f"kio.schema.{family}.v{version}.{kind}"), cls.__name__)


def to_kio(ours: Any, theirs: Any) -> Any:
    hints = get_type_hints(theirs)
    return theirs(
        **{
            field.name: kio_value(
                getattr(ours, field.name)
                if hasattr(ours, field.name)
                else getattr(ours, field.name + "_ms"),
                field.metadata.get("kafka_type"),
                hints[field.name],
            )
            for field in fields(theirs)
        }
    )


def kio_value(value: Any, kind: str | None, hint: Any) -> Any:
    if value is None:
        return None
    match kind:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return (
                None
                if value == -1
                else datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=value)
            )
        case "uuid":
            return None if value == ZERO_ID else value
        case _:
            pass
    if get_origin(hint) is tuple:
        element = get_args(hint)[0]
        return tuple(kio_value(each, None, element) for each in value)
    if get_args(hint):
        inner = next(arg for arg in get_args(hint) if arg is not type(None))
        return kio_value(value, kind, inner)
    if hasattr(hint, "__type__"):
        return to_kio(value, hint)
    assert not isinstance(value, UUID)
    return value
