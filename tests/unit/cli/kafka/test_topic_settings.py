import pytest

from barnabas.cli.kafka.failures import RequestRejected
from barnabas.cli.kafka.topic_settings import check_topic_settings

REPLICAS = "leader.replication.throttled.replicas"


@pytest.mark.parametrize(
    ("name", "value", "shown", "message"),
    [
        ("retention.ms", "abc", "abc", "Not a number of type LONG"),
        ("segment.bytes", "99999999999", "99999999999", "Not a number of type INT"),
        ("min.cleanable.dirty.ratio", "x", "x", "Not a number of type DOUBLE"),
        ("retention.ms", "-5", "-5", "Value must be at least -1"),
        ("min.cleanable.dirty.ratio", "3", "3.0", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "-1", "-1.0", "Value must be at least 0"),
        ("cleanup.policy", "compact,foo", "foo", "String must be one of: compact, delete"),
        ("message.timestamp.type", "x", "x", "String must be one of: CreateTime, LogAppendTime"),
        ("compression.gzip.level", "0", "0", "Value must be between 1 and 9 or equal to -1"),
        ("preallocate", "foo", "foo", "Expected value to be either true or false"),
        ("message.format.version", "foo", "foo", "Version foo is not a valid version"),
        (
            REPLICAS,
            "foo",
            "[foo]",
            f"{REPLICAS} must be the literal '*' or a list of replicas in the following format:"
            " [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
    ],
)
def test_invalid_value_is_rejected_with_kafka_message(
    name: str, value: str, shown: str, message: str
) -> None:
    with pytest.raises(RequestRejected) as caught:
        check_topic_settings({name: value})
    assert caught.value.message == f"Invalid value {shown} for configuration {name}: {message}"


def test_unknown_setting_is_rejected() -> None:
    with pytest.raises(RequestRejected) as caught:
        check_topic_settings({"retention.ms": "1", "nosuch": "1"})
    assert caught.value.message == "Unknown topic config name: nosuch"


def test_contradicting_settings_are_rejected() -> None:
    with pytest.raises(RequestRejected) as caught:
        check_topic_settings({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})
    expected = "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)"
    assert caught.value.message == expected


def test_valid_settings_pass() -> None:
    check_topic_settings(
        {"retention.ms": " -1 ", "cleanup.policy": "compact,delete", "preallocate": "TRUE"}
    )
