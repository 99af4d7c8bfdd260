"""Dead letters: records that a pipeline could not process, with headers that say why and where they came from. Pure.

The names of the headers are those of Kafka Connect's dead letter queue, so that its tools and runbooks work. Connect
has no name for the timestamp. `expect` (expectations.py) writes dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.consumer import ConsumedRecord
from barnabas.errors import BarnabasError

REASON_HEADER = "__connect.errors.exception.message"
SOURCE_HEADERS = {
    "topic": "__connect.errors.topic",
    "partition": "__connect.errors.partition",
    "offset": "__connect.errors.offset",
    "timestamp": "barnabas.errors.timestamp",
}
"""Column → header. The timestamp is in milliseconds since 1970."""
HEADER_PREFIXES = ("__connect.errors.", "barnabas.errors.")


class NotADeadLetter(BarnabasError):
    """A record has no header with the topic that it came from."""


class DeadLetter(NamedTuple):
    """The original record, and the reason why it was rejected. `timestamp` is None if it is unknown."""

    topic: str
    reason: str
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def parse_dead_letter(record: ConsumedRecord) -> DeadLetter:
    """Return the original record. Raises NotADeadLetter.

    A record that was rejected twice has two sets of headers, of which the last one counts.
    """
    added = {
        name: (value or b"").decode("utf-8", "replace")
        for name, value in record.headers
        if name.startswith(HEADER_PREFIXES)
    }
    topic = added.get(SOURCE_HEADERS["topic"])
    if not topic:
        where = f"{record.topic}-{record.partition}, offset {record.offset}"
        why = f"has no header {SOURCE_HEADERS['topic']}; --to NAME sends all letters to one topic"
        raise NotADeadLetter(f"{where}: {why}")
    return DeadLetter(
        topic=topic,
        reason=added.get(REASON_HEADER, ""),
        timestamp=parse_timestamp(added),
        key=record.key,
        value=record.value,
        headers=tuple(each for each in record.headers if not each[0].startswith(HEADER_PREFIXES)),
    )


def parse_timestamp(headers: Mapping[str, str]) -> int | None:
    text = headers.get(SOURCE_HEADERS["timestamp"], "")
    return int(text) if text.isascii() and text.isdigit() else None
