from uuid import UUID

import pytest

from barnabas.cli.kafka.failures import RequestRejected
from barnabas.cli.kafka.topics_by_protocol import is_representable, parse_topic_id


def test_topic_id_is_base64_of_22_characters() -> None:
    assert parse_topic_id("AAAAAAAAAAAAAAAAAAAAAQ") == UUID(int=1)
    assert parse_topic_id("AAAAAAAAAAAAAAAAAAAAAQ==") == UUID(int=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("zz", "Input string `zz` decoded as 1 bytes, which is not equal to the expected 16 bytes"),
        ("", "Input string `` decoded as 0 bytes"),
        ("A?", "Illegal base64 character 3f"),
        ("A" * 25, f"Input string with prefix `{'A' * 24}` is too long to be decoded as a base64"),
    ],
)
def test_invalid_topic_id_is_rejected_with_kafka_message(text: str, message: str) -> None:
    with pytest.raises(RequestRejected) as caught:
        parse_topic_id(text)
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize("name", ["", "x" * 32_768, "\udcff"])
def test_unencodable_name_is_not_representable(name: str) -> None:
    assert not is_representable(name)
    assert is_representable("orders")
