"""Comparison with kafka-python, the most used Python client: it writes and reads the same bytes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from kafka.protocol import admin, consumer, metadata, producer, sasl
from msgspec.structs import replace

from barnabas.model import ZERO_ID
from barnabas.wire.apis import API_NAMES
from barnabas.wire.codec import Message, decode, encode, field_defaults
from barnabas.wire.messages.api_versions import ApiVersionsResponse
from barnabas.wire.messages.metadata import NO_OPERATIONS
from tests.unit.wire.random_messages import ALL, name_of, random_message

RENAMED = {
    "authorized_operations": ("cluster_authorized_operations", "topic_authorized_operations")
}


BETWEEN_BROKERS = {
    "LeaderAndIsr",
    "StopReplica",
    "UpdateMetadata",
    "ControlledShutdown",
    "AlterPartition",
    "Envelope",
    "AllocateProducerIds",
}
"""Requests between brokers, which kafka-python does not have."""
NEW_GROUP_PROTOCOL = {"ConsumerGroupHeartbeat", "ConsumerGroupDescribe"}
"""Requests of the new group protocol, which kafka-python does not have either."""
DELEGATION_TOKENS = {f"{verb}DelegationToken" for verb in ("Create", "Renew", "Expire", "Describe")}
"""kafka-python does not have these requests either."""
CLIENTS = [
    (cls, version)
    for cls, version in ALL
    if API_NAMES[cls.API_KEY] not in BETWEEN_BROKERS | NEW_GROUP_PROTOCOL | DELEGATION_TOKENS
]


def kafka_class(cls: type[Message]) -> Any:
    for module in (admin, consumer, metadata, producer, sasl):
        if hasattr(module, cls.__name__):
            return getattr(module, cls.__name__)
    raise AssertionError(cls)


COMMON = [
    (cls, version)
    for cls, version in CLIENTS
    if kafka_class(cls).valid_versions[0] <= version <= kafka_class(cls).valid_versions[1]
]


@pytest.mark.parametrize(("cls", "version"), COMMON, ids=name_of)
def test_kafka_python_writes_the_same_bytes(cls: type[Message], version: int) -> None:
    for seed in range(200, 215):
        ours = random_message(Random(seed), cls, version)
        golden = bytes(to_kafka(ours, kafka_class(cls), version).encode(version=version))
        assert decode(cls, version, golden) == ours
        assert encode(ours, version) == golden


@pytest.mark.parametrize(("cls", "version"), COMMON, ids=name_of)
def test_kafka_python_reads_our_bytes(cls: type[Message], version: int) -> None:
    for seed in range(300, 305):
        ours = random_message(Random(seed), cls, version)
        # On an error it decodes any response as version 0.
        if isinstance(ours, ApiVersionsResponse):
            ours = replace(ours, error_code=0)
        theirs = kafka_class(cls).decode(encode(ours, version), version=version)
        assert_same(ours, theirs, version)


def test_most_versions_are_compared() -> None:
    assert len(COMMON) > 0.8 * len(CLIENTS)


def to_kafka(ours: Any, theirs: Any, version: int) -> Any:
    values = {}
    for field in theirs._struct._fields:
        value = our_field(ours, field.name)
        if field.for_version_q(version) and not (
            field._tag is not None and value == our_default(ours, field.name)
        ):
            values[field.name] = kafka_value(value, field, theirs, version)
    return theirs(version=version, **values)


def kafka_value(value: Any, field: Any, within: Any, version: int) -> Any:
    if value is None:
        return None
    if field.is_struct_array():
        return [to_kafka(each, getattr(within, field.type_str), version) for each in value]
    if field.is_struct():
        return to_kafka(value, getattr(within, field.type_str), version)
    return kafka_leaf(value, field.name)


def kafka_leaf(value: Any, name: str) -> Any:
    """Convert to kafka-python's values: lists for tuples, sets of bits for bit fields, None for the
    zero id.
    """
    if name == "authorized_operations":
        return {bit for bit in range(32) if value >> bit & 1} if value != NO_OPERATIONS else None
    if isinstance(value, tuple):
        return list(value)
    return None if value == ZERO_ID else value


def assert_same(ours: Any, theirs: Any, version: int) -> None:
    for field in theirs._struct._fields:
        if not field.for_version_q(version):
            continue
        value, their_value = our_field(ours, field.name), getattr(theirs, field.name)
        if value is not None and field.is_struct_array():
            assert len(value) == len(their_value)
            for one, other in zip(value, their_value, strict=True):
                assert_same(one, other, version)
        elif value is not None and field.is_struct():
            assert_same(value, their_value, version)
        else:
            assert kafka_leaf(value, field.name) == their_value


def our_field(ours: Any, name: str) -> Any:
    """Return our value, or None for fields of releases after 3.9."""
    return getattr(ours, our_name(ours, name), None)


def our_name(ours: Any, name: str) -> str:
    return next(
        (candidate for candidate in RENAMED.get(name, ()) if hasattr(ours, candidate)), name
    )


def our_default(ours: Any, name: str) -> Any:
    return dict(field_defaults(type(ours)))[name]
