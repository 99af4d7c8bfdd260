"""Small text files beside the logs, in Kafka's formats.

    recovery-point-offset-checkpoint   recovery point of each log                        ┐ "0", the number of lines,
    log-start-offset-checkpoint        log start offset of each log                      │ then "topic partition offset"
    replication-offset-checkpoint      high watermark of each log                        │ lines
    cleaner-offset-checkpoint          offset up to which each log is compacted          ┘
    meta.properties                    owner of the directory: version, broker.id, cluster.id
    partition.metadata                 "version: 0", "topic_id: <22 characters>"         (in each log's directory)
    .kafka_cleanshutdown               mark of a clean shutdown; removed when read

A damaged checkpoint never prevents a start. A damaged line causes a warning, and its partition gets safe defaults:
recover the log, start it at its first segment, high watermark at the log start offset. The other lines are used. Each
value is a hint, which checkpoint_validation.py compares with the log on disk. A damaged meta.properties can prevent a
start: a broker must not write to the directory of another one.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.storage.files import OFFSETS_MAX, PROPERTIES_MAX, read_head
from barnabas.world.ports import Disk

logger = logging.getLogger(__name__)

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
CLEANED_TO = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BLANK = ".barnabas_blank"
LOCK = ".lock"
LONG_MAX = 2**63 - 1
QUOTE_MAX = 60
DAMAGED_BITS_MAX = 16


# ---- offsets per partition ------------------------------------------------------------------------------------


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = ["0", str(len(offsets))]
    lines += [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())]
    return ("\n".join(lines) + "\n").encode()


class OffsetCheckpoint(NamedTuple):
    """The usable lines of a checkpoint. `problem` describes the first damage; None: there is none."""

    offsets: dict[TopicPartition, int]
    problem: str | None = None


def decode_offsets(data: bytes) -> OffsetCheckpoint:
    """Decode every valid line, and ignore the others. An empty file, as Kafka creates it, has no lines.

    Of two values for one partition the smaller is used: the broker then verifies or keeps more records.
    """
    if not data:
        return OffsetCheckpoint({})
    lines = data.decode("ascii", errors="replace").split("\n")
    rest = lines.pop()  # Empty, unless the last line is incomplete: its number may lack digits.
    if not lines or lines[0].strip() != "0":
        return OffsetCheckpoint({}, f"unknown version {quote(lines[0] if lines else rest)}")
    problems = [f"incomplete last line {quote(rest)}"] if rest else []
    offsets: dict[TopicPartition, int] = {}
    for line in lines[2:]:
        entry = decode_line(line)
        if entry is None:
            problems.append(f"bad line {quote(line)}")
            continue
        partition, offset = entry
        known = offsets.get(partition, offset)
        if known != offset:
            problems.append(f"two values for {partition}: {known} and {offset}")
        offsets[partition] = min(known, offset)
    if len(lines) < 2 or lines[1].strip() != str(len(lines) - 2):
        problems.append(f"{len(lines) - 2} lines, expected {quote(lines[1] if lines[1:] else '')}")
    return OffsetCheckpoint(offsets, problems[0] if problems else None)


def decode_line(line: str) -> tuple[TopicPartition, int] | None:
    fields = line.split()
    if len(fields) != 3:
        return None
    partition, offset = parse_number(fields[1]), parse_number(fields[2])
    if partition is None or offset is None:
        return None
    return TopicPartition(fields[0], partition), offset


def parse_number(text: str) -> int | None:
    """Return a decimal number from 0 to 2**63 - 1, or None for any other text."""
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(LONG_MAX)):
        return None
    number = int(text)
    return number if number <= LONG_MAX else None


def quote(text: str) -> str:
    """Return text of a damaged file, short and printable."""
    return repr(text if len(text) <= QUOTE_MAX else text[:QUOTE_MAX] + "...")


def read_offsets(disk: Disk, path: str) -> OffsetCheckpoint:
    if not disk.exists(path):
        return OffsetCheckpoint({})
    found = decode_offsets(read_head(disk, path, OFFSETS_MAX))
    if found.problem is not None:
        logger.warning(
            "checkpoint is damaged path=%s problem=%s used_lines=%d; "
            "partitions without a usable line get safe defaults",
            *(path, found.problem, len(found.offsets)),
        )
    return found


# ---- owner of a log directory ---------------------------------------------------------------------------------


def check_meta_properties(disk: Disk, directory: str, *, broker_id: int, cluster_id: str) -> None:
    """Write meta.properties if it is missing or incomplete. StorageError if it names another broker or cluster."""
    path = f"{directory}/{META_PROPERTIES}"
    if disk.exists(path):
        found = decode_properties(read_head(disk, path, PROPERTIES_MAX))
        for key, ours in (("cluster.id", cluster_id), ("broker.id", str(broker_id))):
            theirs = found.get(key)
            if theirs is not None and theirs != ours:
                advice = "set broker.id to " + theirs
                if key == "cluster.id":  # not a setting: it is stored in the registry
                    advice = "use the registry or ZooKeeper of that cluster"
                raise StorageError(
                    path,
                    f"this directory belongs to {key} {theirs}, this broker has {ours}: {advice}, "
                    "set log.dirs to another directory, or remove this one if its data is not needed",
                )
        if "cluster.id" in found and "broker.id" in found:
            return
    text = f"#\nbroker.id={broker_id}\nversion=0\ncluster.id={cluster_id}\n"
    disk.replace_bytes(path, text.encode())


def decode_properties(data: bytes) -> dict[str, str]:
    properties: dict[str, str] = {}
    for line in data.decode(errors="replace").splitlines():
        key, separator, value = line.partition("=")
        if separator and not key.lstrip().startswith(("#", "!")):
            properties[key.strip()] = value.strip()
    return properties


# ---- the topic a log belongs to -------------------------------------------------------------------------------


def encode_partition_metadata(topic_id: UUID) -> bytes:
    text = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
    return f"version: 0\ntopic_id: {text}\n".encode()


def decode_partition_metadata(data: bytes) -> UUID | None:
    """Return the topic id, or None if the file has no valid one."""
    for line in data.decode(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "topic_id":
            try:
                return UUID(bytes=base64.urlsafe_b64decode(value.strip() + "=="))
            except (ValueError, binascii.Error):
                return None
    return None


def is_damaged_copy(found: UUID, expected: UUID) -> bool:
    """Return whether `found` is `expected` with a few damaged bits, and not the id of another topic.

    Two random ids differ in about 61 of 122 bits. The chance that they differ in 16 or fewer is below 1 in 10**16.
    """
    return 0 < (found.int ^ expected.int).bit_count() <= DAMAGED_BITS_MAX
