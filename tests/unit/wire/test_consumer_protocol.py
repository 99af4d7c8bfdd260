"""Messages between group members, compared with kio, a codec generated from the protocol
definitions.
"""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from random import Random
from typing import Any

import pytest
from kafka.protocol.consumer import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kio.serial import entity_writer

from barnabas.errors import RemoteWireError
from barnabas.wire.codec import VERSION
from barnabas.wire.consumer_protocol import (
    LATEST_VERSION,
    ConsumerAssignment,
    ConsumerSubscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tests.unit.wire.random_messages import random_message
from tests.unit.wire.test_against_kio import to_kio

VERSIONS = range(LATEST_VERSION + 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_kio_writes_the_same_subscription(version: int) -> None:
    for seed in range(15):
        ours = random_message(Random(seed), ConsumerSubscription, version)
        golden = kio_bytes(ours, "subscription", version)
        assert encode_subscription(ours, version) == golden
        assert decode_subscription(golden) == ours


@pytest.mark.parametrize("version", VERSIONS)
def test_kio_writes_the_same_assignment(version: int) -> None:
    for seed in range(15):
        ours = random_message(Random(seed), ConsumerAssignment, version)
        golden = kio_bytes(ours, "assignment", version)
        assert encode_assignment(ours, version) == golden
        assert decode_assignment(golden) == ours


@pytest.mark.parametrize("version", range(2))
def test_kafka_python_reads_our_messages(version: int) -> None:
    subscription = ConsumerSubscription(("orders", "bills"), b"abc")
    theirs = ConsumerProtocolSubscription.decode(encode_subscription(subscription, version))
    assert (theirs.topics, theirs.user_data) == (["orders", "bills"], b"abc")
    assignment = ConsumerAssignment((TopicPartitions("orders", (0, 2)),), b"")
    theirs = ConsumerProtocolAssignment.decode(encode_assignment(assignment, version))
    (one,) = theirs.assigned_partitions
    assert (one.topic, one.partitions) == ("orders", [0, 2])


def test_future_version_is_read_as_newest_known() -> None:
    subscription = ConsumerSubscription(
        ("orders",), None, (TopicPartitions("orders", (1,)),), 7, "rack-a"
    )
    data = VERSION.pack(9) + encode_subscription(subscription)[2:] + b"what comes after"
    assert decode_subscription(data) == subscription


def test_empty_bytes_are_an_empty_assignment() -> None:
    assert decode_assignment(b"") == ConsumerAssignment()


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff\x00\x00", b"\x00\x00\x00\x00\x00\x09"])
def test_invalid_subscription_is_rejected(data: bytes) -> None:
    with pytest.raises(RemoteWireError):
        decode_subscription(data)


def kio_bytes(ours: Any, kind: str, version: int) -> bytes:
    module = import_module(f"kio.schema.consumer_protocol_{kind}.v{version}.data")
    theirs = getattr(module, f"ConsumerProtocol{kind.title()}")
    buffer = BytesIO()
    entity_writer(theirs)(buffer, to_kio(ours, theirs))
    return VERSION.pack(version) + buffer.getvalue()
