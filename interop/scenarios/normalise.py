"""Flattens a response to comparable values, without values that each broker chooses for itself.

Lists whose items have a name or number are keyed by it, so their order does not matter. Ids, times, addresses and disk
sizes are replaced by a placeholder. Texts for people are kept separately: brokers word them differently, and clients
depend on codes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from uuid import UUID

from msgspec import Struct

from barnabas.batch.header import HEADER_FIELDS, HEADER_SIZE, batch_headers
from barnabas.errors import ErrorCode, RemoteWireError
from barnabas.model import ZERO_ID

HOUR_MS = 3_600_000
REMEMBERED = 8
NAMING = (
    *("name", "topic", "partition_index", "partition", "index", "broker_id", "node_id"),
    *("api_key", "resource_name", "key", "member_id", "group_id", "partition_id", "feature"),
    *("entity_type", "topic_name", "transactional_id"),
)
OF_MEMBER = re.compile(r"(?<=-)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""The end of a member id, after the client id."""
FOR_PEOPLE = frozenset({"error_message", "batch_index_error_message", "documentation"})
CHOSEN = frozenset({"host", "port", "cluster_id", "log_dir", "total_bytes", "usable_bytes"})
IGNORED = frozenset({"throttle_time_ms"})

Flat = dict[str, object]


class Normaliser:
    """Normaliser for one broker: it records each topic's id, and numbers group members in order of appearance."""

    def __init__(self) -> None:
        self.topics: dict[UUID, str] = {}
        self.members: dict[str, int] = {}
        self.now_ms = 0
        self.remembered: dict[object, Flat] = {}

    def flatten(self, message: object) -> tuple[Flat, Flat]:
        """Values to compare, and texts for people."""
        found: Flat = {}
        texts: Flat = {}
        self.learn(message)
        for path, value in self.walk(message, ""):
            last = path.rpartition(".")[2]
            if last in FOR_PEOPLE:
                texts[path] = value
            elif last not in IGNORED:
                found[path] = value
        return found, texts

    def flatten_cached(self, message: object) -> Flat:
        """Values of a response that is requested often and rarely changes."""
        if message not in self.remembered:
            if len(self.remembered) >= REMEMBERED:
                self.remembered.clear()
            self.remembered[message], _ = self.flatten(message)
        return dict(self.remembered[message])

    def learn(self, message: object) -> None:
        named = items_of(message)
        if named is not None:
            given = dict(named)
            name, topic_id = given.get("name"), given.get("topic_id")
            if isinstance(name, str) and isinstance(topic_id, UUID) and topic_id != ZERO_ID:
                self.topics[topic_id] = name
            for value in given.values():
                self.learn(value)
        elif isinstance(message, tuple):
            for item in message:
                self.learn(item)

    def walk(self, value: object, path: str) -> Iterator[tuple[str, object]]:
        last = path.rpartition(".")[2]
        named = items_of(value)
        if named is not None:
            for name, item in named:
                yield from self.walk(item, f"{path}.{name}" if path else name)
        elif last == "records" and isinstance(value, bytes | memoryview | None):
            yield from self.batches(bytes(value or b""), path)
        elif isinstance(value, tuple | list):
            yield from self.sequence(value, path)
        else:
            yield path, self.scalar(last, value)

    def sequence(self, items: Sequence[object], path: str) -> Iterator[tuple[str, object]]:
        keys = [key_of(item) for item in items]
        if None in keys:
            if items and items_of(items[0]) is None:
                shown = [self.scalar("", item) for item in items]
                is_set = path.endswith(".partitions")
                yield path, tuple(sorted(shown, key=str) if is_set else shown)
                return
            keys = list(range(len(items)))
        yield f"{path}.count", len(items)
        if path.endswith(".active_producers"):
            items = sorted(items, key=str)  # Kafka lists them in the order of a hash table
        seen: dict[object, int] = {}
        for key, item in zip(keys, items, strict=True):
            title = self.scalar("", key)
            again = seen[title] = seen.get(title, 0) + 1
            name = f"{title}#{again}" if again > 1 else title
            yield from self.walk(item, f"{path}.{name}")

    def scalar(self, name: str, value: object) -> object:
        if name in CHOSEN:
            return f"<{name}>" if value not in ("", -1, None) else value
        if name == "session_id" and value:
            return "<session>"
        if name == "producer_id" and value != -1:
            return "<producer id>"
        if name == "error_code" or name.endswith("_error_code"):
            return ErrorCode(int(str(value))).name if isinstance(value, int) else value
        if isinstance(value, UUID):
            known = self.topics.get(value)
            return f"<id of {known}>" if known is not None else str(value)
        if isinstance(value, Enum):
            return value.name
        if isinstance(value, str):
            return OF_MEMBER.sub(self.numbered, value)
        if isinstance(value, bool):
            return value
        if isinstance(value, int) and abs(value - self.now_ms) < HOUR_MS:
            return "<now>"
        if isinstance(value, bytes | memoryview):
            return digest(bytes(value))
        return value

    def numbered(self, member: re.Match[str]) -> str:
        return f"<member {self.members.setdefault(member[0], len(self.members) + 1)}>"

    def batches(self, data: bytes, path: str) -> Iterator[tuple[str, object]]:
        """Batches field by field; all other bytes as they are."""
        view = memoryview(data)
        end = 0
        try:
            for number, (at, header) in enumerate(batch_headers(view)):
                end = at + header.size
                body = view[at + HEADER_SIZE : end]
                shown = {name: self.scalar("", getattr(header, name)) for name in HEADER_FIELDS}
                if "<now>" in shown.values():
                    del shown["crc"]
                for name, item in shown.items():
                    yield f"{path}.{number}.{name}", item
                yield f"{path}.{number}.body", digest(bytes(body))
        except RemoteWireError:
            pass
        yield f"{path}.rest", digest(data[end:])


def items_of(value: object) -> Iterable[tuple[str, object]] | None:
    if isinstance(value, Struct):
        return [(name, getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if isinstance(value, Mapping):
        return [(str(key), item) for key, item in value.items()]
    return None


def key_of(item: object) -> object:
    """The key of a list item: its name, else its number, else its id."""
    named = items_of(item)
    if named is None:
        return None
    given = dict(named)
    for name in NAMING:
        if name in given:
            key = given[name]
            if key in (None, "") and "topic_id" in given:
                return given["topic_id"]
            return key
    return given.get("topic_id")


def digest(data: bytes) -> str:
    if len(data) <= 16:
        return f"0x{data.hex()}"
    return f"{len(data)} bytes {hashlib.sha256(data).hexdigest()[:12]}"
