"""Comparison with kio, a codec generated from the protocol definitions: it writes and reads the
same bytes.
"""

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
from barnabas.wire.headers import RequestHeader, encode_request_header, encode_response_header
from tests.unit.wire.random_messages import ALL as EVERY_VERSION
from tests.unit.wire.random_messages import name_of, random_message

# kio does not have version 1, which Kafka 4 has added. interop runs clients that use it.
ALL = [
    (cls, version)
    for cls, version in EVERY_VERSION
    if version == 0 or not cls.__name__.startswith("ConsumerGroupHeartbeat")
]
REQUESTS = [(cls, version) for cls, version in ALL if cls.__name__.endswith("Request")]
RESPONSES = [(cls, version) for cls, version in ALL if cls.__name__.endswith("Response")]


@pytest.mark.parametrize(("cls", "version"), ALL, ids=name_of)
def test_kio_writes_the_same_bytes(cls: type[Message], version: int) -> None:
    theirs = kio_class(cls, version)
    for seed in range(15):
        ours = random_message(Random(seed), cls, version)
        buffer = BytesIO()
        entity_writer(theirs)(buffer, to_kio(ours, theirs))
        golden = buffer.getvalue()
        assert decode(cls, version, golden) == ours
        assert encode(ours, version) == golden


@pytest.mark.parametrize(("cls", "version"), ALL, ids=name_of)
def test_kio_reads_our_bytes(cls: type[Message], version: int) -> None:
    theirs = kio_class(cls, version)
    for seed in range(100, 105):
        ours = random_message(Random(seed), cls, version)
        data = encode(ours, version)
        read, size = entity_reader(theirs)(data, 0)
        assert size == len(data)
        assert read == to_kio(ours, theirs)


@pytest.mark.parametrize(("cls", "version"), REQUESTS, ids=name_of)
def test_kio_writes_the_same_request_header(cls: type[Message], version: int) -> None:
    schema = kio_class(cls, version).__header_schema__
    values = {
        "request_api_key": cls.API_KEY,
        "request_api_version": version,
        "correlation_id": 77,
        "client_id": "broker-1",
    }
    buffer = BytesIO()
    entity_writer(schema)(
        buffer, schema(**{field.name: values[field.name] for field in fields(schema)})
    )
    ours = encode_request_header(RequestHeader(cls.API_KEY, version, 77, "broker-1"))
    assert ours == buffer.getvalue()


@pytest.mark.parametrize(("cls", "version"), RESPONSES, ids=name_of)
def test_kio_writes_the_same_response_header(cls: type[Message], version: int) -> None:
    schema = kio_class(cls, version).__header_schema__
    buffer = BytesIO()
    entity_writer(schema)(buffer, schema(correlation_id=77))
    assert encode_response_header(cls.API_KEY, version, 77) == buffer.getvalue()


def kio_class(cls: type[Message], version: int) -> Any:
    kind = "request" if cls.__name__.endswith("Request") else "response"
    family = sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix(kind.title())).lower()
    return getattr(import_module(f"kio.schema.{family}.v{version}.{kind}"), cls.__name__)


def to_kio(ours: Any, theirs: Any) -> Any:
    hints = get_type_hints(theirs)
    return theirs(
        **{
            field.name: kio_value(
                getattr(ours, our_name(ours, field.name)),
                field.metadata.get("kafka_type"),
                hints[field.name],
            )
            for field in fields(theirs)
        }
    )


def our_name(ours: Any, name: str) -> str:
    """Return our field name. kio drops units, avoids built-in names and splits KRaft into two
    words.
    """
    names = (name, name + "_ms", name.removesuffix("_"), name.replace("k_raft", "kraft"))
    return next(each for each in names if hasattr(ours, each))


def kio_value(value: Any, kind: str | None, hint: Any) -> Any:
    if value is None:
        return None
    match kind:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
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
