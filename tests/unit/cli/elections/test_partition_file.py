import json

import pytest

from barnabas.cli.elections.partition_file import parse_partition_file
from barnabas.model import TopicPartition


def test_partitions_are_read_in_order() -> None:
    text = '{"partitions": [{"topic": "b", "partition": 1}, {"topic": "a", "partition": 0}]}'
    assert parse_partition_file(text) == [TopicPartition("b", 1), TopicPartition("a", 0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "Expected JSON object, received []"),
        ("{}", 'Replica election data is missing "partitions" field'),
        ('{"partitions": {}}', "Expected JSON array, received {}"),
        ('{"partitions": [1]}', "Expected JSON object, received 1"),
        ('{"partitions": [{"topic": "a"}]}', "No such field exists: `partition`"),
        (
            '{"partitions": [{"topic": 1, "partition": 0}]}',
            "Expected `String` value, received 1",
        ),
        (
            '{"partitions": [{"topic": "a", "partition": 4294967296}]}',
            "Expected `Integer` value, received 4294967296",
        ),
        (
            '{"partitions": [{"topic": "a", "partition": true}]}',
            "Expected `Integer` value, received true",
        ),
        (
            '{"partitions": [{"topic": "a", "partition": 0}, {"topic": "a", "partition": 0}]}',
            "Replica election data contains duplicate partitions: [a-0]",
        ),
    ],
)
def test_invalid_file_is_rejected_with_kafka_message(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_partition_file(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["", "{", "nope"])
def test_invalid_json_is_reported_as_such(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        parse_partition_file(text)


def test_deep_nesting_is_error() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_partition_file("[" * 100_000)
