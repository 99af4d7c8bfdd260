"""Small text files beside the logs, in Kafka's formats.

    recovery-point-offset-checkpoint   up to where each log is known to be fsynced       ┐ "0", the number of lines,
    log-start-offset-checkpoint        where each log begins                             │ then "topic partition offset"
    replication-offset-checkpoint      the high watermark of each log                    │ lines
    cleaner-offset-checkpoint          up to where each log has been compacted           ┘
    meta.properties                    whose directory this is: version, broker.id, cluster.id
    partition.metadata                 "version: 0", "topic_id: <22 characters>"         (in each log's directory)
    .kafka_cleanshutdown               everything is on the disk; removed when read

A checkpoint that cannot be read costs a warning and the safe default (check the log, begin at its first segment, high
watermark 0); it never stops a start. meta.properties does: a directory of another broker must not be written to.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Mapping
from uuid import UUID

from barnabas.errors import StorageError, reason
from barnabas.model import TopicPartition
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


# ---- offsets per partition ------------------------------------------------------------------------------------


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = ["0", str(len(offsets))]
    lines += [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())]
    return ("\n".join(lines) + "\n").encode()


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """ValueError if these bytes are not a whole checkpoint. Kafka leaves empty files where there is nothing yet."""
    lines = data.decode().splitlines()
    if not lines:
        return {}
    if lines[0].strip() != "0":
        raise ValueError(f"checkpoint of version {lines[0]!r}")
    if len(lines) < 2 or int(lines[1]) != len(lines) - 2:
        raise ValueError("the number of lines does not match")
    offsets: dict[TopicPartition, int] = {}
    for line in lines[2:]:
        topic, partition, offset = line.split()
        if int(offset) < 0 or int(partition) < 0:
            raise ValueError(f"negative number in {line!r}")
        offsets[TopicPartition(topic, int(partition))] = int(offset)
    return offsets


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    if not disk.exists(path):
        return {}
    try:
        return decode_offsets(disk.read_bytes(path))
    except ValueError as error:
        logger.warning(
            "checkpoint is unusable, going on without it path=%s reason=%s", path, reason(error)
        )
        return {}


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    disk.replace_bytes(path, encode_offsets(offsets))


# ---- whose directory this is ----------------------------------------------------------------------------------


def check_meta_properties(disk: Disk, directory: str, *, broker_id: int, cluster_id: str) -> None:
    """Write meta.properties into a new directory; StorageError if the one there names somebody else."""
    path = f"{directory}/{META_PROPERTIES}"
    if disk.exists(path):
        found = decode_properties(disk.read_bytes(path))
        for key, ours in (("cluster.id", cluster_id), ("broker.id", str(broker_id))):
            theirs = found.get(key)
            if theirs is not None and theirs != ours:
                back = "set broker.id to " + theirs
                if key == "cluster.id":  # nobody sets it: it lies in the registry
                    back = "use the registry or ZooKeeper of that cluster"
                raise StorageError(
                    path,
                    f"this directory belongs to {key} {theirs}, this broker has {ours}: {back}, "
                    "point log.dirs elsewhere, or remove the directory if its data is no longer wanted",
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
    """None if the file does not tell."""
    for line in data.decode(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "topic_id":
            try:
                return UUID(bytes=base64.urlsafe_b64decode(value.strip() + "=="))
            except (ValueError, binascii.Error):
                return None
    return None
