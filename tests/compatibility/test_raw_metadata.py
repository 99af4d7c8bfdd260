"""Metadata by topic id, as Kafka 3.9 answers it."""

from uuid import UUID, uuid4

import pytest

from barnabas.errors import ErrorCode
from barnabas.model import ZERO_ID
from barnabas.wire.messages.metadata import (
    NO_OPERATIONS,
    TOPIC_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.compatibility.raw import Raw

UNKNOWN_ID = UUID(int=77)


def ask(
    raw: Raw, *topics: MetadataRequestTopic, create: bool = False, operations: bool = False
) -> tuple[MetadataResponseTopic, ...]:
    request = MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=operations,
    )
    return raw.ask(request, MetadataResponse, 12).topics


def by_id(topic_id: UUID, name: str | None = None) -> MetadataRequestTopic:
    return MetadataRequestTopic(topic_id=topic_id, name=name)


@pytest.mark.parametrize("name", [None, "", "another-name"])
def test_topic_id_takes_precedence_over_name(raw: Raw, topic: str, name: str | None) -> None:
    topic_id = raw.topic_id(topic)
    (found,) = ask(raw, by_id(topic_id, name))
    assert (found.error_code, found.name, found.topic_id) == (ErrorCode.NONE, topic, topic_id)
    assert [partition.leader_id for partition in found.partitions] == [1]


@pytest.mark.parametrize("name", [None, "", "another-name"])
@pytest.mark.parametrize("create", [False, True])
def test_unknown_topic_id_returns_null_name(raw: Raw, name: str | None, create: bool) -> None:
    (found,) = ask(raw, by_id(UNKNOWN_ID, name), create=create)
    assert (found.error_code, found.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert (found.topic_id, found.is_internal, found.partitions) == (UNKNOWN_ID, False, ())


def test_each_id_is_answered_once(raw: Raw, topic: str) -> None:
    topic_id = raw.topic_id(topic)
    found = ask(
        raw,
        by_id(UNKNOWN_ID, ""),
        by_id(topic_id),
        by_id(topic_id, topic),
        by_id(topic_id, ""),
        by_id(UNKNOWN_ID),
    )
    assert [(each.name, each.topic_id) for each in found] == [(None, UNKNOWN_ID), (topic, topic_id)]


def test_names_are_ignored_next_to_ids_and_create_nothing(raw: Raw, topic: str) -> None:
    absent = f"absent-{uuid4()}"
    topic_id = raw.topic_id(topic)
    wanted = (by_id(topic_id), by_id(ZERO_ID, absent), by_id(ZERO_ID, None))
    (found,) = ask(raw, *wanted, create=True)
    assert found.topic_id == topic_id
    (found,) = ask(raw, by_id(ZERO_ID, absent))
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topic_without_name_and_id_fails_whole_request(raw: Raw, topic: str) -> None:
    request = MetadataRequest(topics=(by_id(ZERO_ID, None), by_id(ZERO_ID, topic)))
    answer = raw.ask(request, MetadataResponse, 12)
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("", ErrorCode.INVALID_REQUEST),
        (topic, ErrorCode.INVALID_REQUEST),
    ]
    assert (answer.brokers, answer.controller_id) == ((), -1)


def test_authorized_operations_are_answered_for_all_but_unknown_ids(raw: Raw, topic: str) -> None:
    named = ask(raw, by_id(ZERO_ID, topic), by_id(ZERO_ID, "nowhere"), operations=True)
    assert [each.topic_authorized_operations for each in named] == [TOPIC_OPERATIONS] * 2
    found = ask(raw, by_id(raw.topic_id(topic)), by_id(UNKNOWN_ID), operations=True)
    assert [each.topic_authorized_operations for each in found] == [TOPIC_OPERATIONS, NO_OPERATIONS]
