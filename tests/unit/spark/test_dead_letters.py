from __future__ import annotations

import pytest

from barnabas.client.consumer import ConsumedRecord
from barnabas.spark.dead_letters import DeadLetter, NotADeadLetter, parse_dead_letter


def record(*headers: tuple[str, bytes | None]) -> ConsumedRecord:
    return ConsumedRecord("dead", 0, 7, 1000, b"key", b"value", headers)


def test_original_record_is_restored() -> None:
    found = parse_dead_letter(
        record(
            ("own", b"1"),
            ("__connect.errors.topic", b"orders"),
            ("__connect.errors.exception.message", b"too old"),
            ("barnabas.errors.timestamp", b"999"),
        )
    )
    assert found == DeadLetter("orders", "too old", 999, b"key", b"value", (("own", b"1"),))


def test_last_headers_of_record_rejected_twice_count() -> None:
    topics = (("__connect.errors.topic", b"one"), ("__connect.errors.topic", b"two"))
    found = parse_dead_letter(record(*topics))
    assert (found.topic, found.reason, found.timestamp, found.headers) == ("two", "", None, ())


def test_record_without_source_is_rejected() -> None:
    with pytest.raises(NotADeadLetter, match=r"dead-0, offset 7: has no header __connect.errors"):
        parse_dead_letter(record(("own", b"1")))
