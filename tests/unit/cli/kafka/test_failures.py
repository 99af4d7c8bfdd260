from datetime import UTC, datetime

import pytest

from barnabas.cli.kafka.failures import (
    RequestRejected,
    error_message,
    exception_name,
    find_hint,
    log_line,
)
from barnabas.client.cluster import Unreachable
from barnabas.errors import ApiError, ErrorCode, NoNode, RegistryUnreachable

AT = datetime(2026, 11, 15, 11, 36, 47, 887_123, tzinfo=UTC)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (ErrorCode.TOPIC_ALREADY_EXISTS, "TopicExistsException"),
        (ErrorCode.INVALID_REPLICATION_FACTOR, "InvalidReplicationFactorException"),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, "InvalidTopicException"),
        (ErrorCode.INVALID_CONFIG, "InvalidConfigurationException"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "UnknownTopicOrPartitionException"),
        (ErrorCode.REQUEST_TIMED_OUT, "TimeoutException"),
        (ErrorCode.POLICY_VIOLATION, "PolicyViolationException"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "TopicAuthorizationException"),
        (ErrorCode.NON_EMPTY_GROUP, "GroupNotEmptyException"),
        (ErrorCode.KAFKA_STORAGE_ERROR, "KafkaStorageException"),
    ],
)
def test_error_code_maps_to_kafka_exception_name(code: ErrorCode, name: str) -> None:
    assert exception_name(ApiError(code)) == f"org.apache.kafka.common.errors.{name}"


def test_log_line_has_format_of_kafka_tools() -> None:
    error = ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'a' already exists")
    assert log_line(error, "org.apache.kafka.tools.TopicCommand", AT) == (
        "[2026-11-15 11:36:47,887] ERROR org.apache.kafka.common.errors.TopicExistsException:"
        " topic 'a' already exists\n (org.apache.kafka.tools.TopicCommand)"
    )
    refused = RequestRejected("a\x1b[31m")
    assert "ERROR java.lang.IllegalArgumentException: a\\x1b[31m\n" in log_line(refused, "x", AT)


def test_missing_message_is_replaced_by_kafka_message() -> None:
    assert error_message(ApiError(ErrorCode.REQUEST_TIMED_OUT)) == "The request timed out."
    assert error_message(ApiError(ErrorCode.POLICY_VIOLATION)) == "POLICY_VIOLATION"
    assert error_message(NoNode("/brokers", "gone")) == "/brokers: gone"


def test_unreachable_server_is_reported_with_reason_and_hint() -> None:
    error = Unreachable([("localhost:1", "Connection refused")])
    assert error_message(error) == "no broker answers: localhost:1 (Connection refused)"
    hint = find_hint(error)
    assert hint is not None
    assert "barnabas up" in hint
    assert find_hint(RequestRejected("no")) is None
    hint = find_hint(RegistryUnreachable("", "no ZooKeeper answers"))
    assert hint is not None
    assert "--bootstrap-server" in hint
