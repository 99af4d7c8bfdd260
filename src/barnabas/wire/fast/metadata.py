"""Encoder of Metadata responses: topics are encoded once and reused in every response until they change."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

from barnabas.errors import LocalWireError
from barnabas.wire.codec import encode, encode_struct
from barnabas.wire.messages.metadata import (
    NO_OPERATIONS,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.primitives import INT32, compact_size


def encode_metadata_topic(version: int, topic: MetadataResponseTopic) -> bytes:
    """Encode one topic, to be reused in any number of responses of this version until the topic changes."""
    flexible = version >= 9
    try:
        rows = [pack_partition(version, partition) for partition in topic.partitions]
    except (struct.error, AttributeError, TypeError) as error:
        raise LocalWireError(f"MetadataResponseTopic v{version}: {error}") from error
    bare = b"".join(encode_struct(topic._replace(partitions=()), version, flexible))
    tail_bytes = (4 if version >= 8 else 0) + (1 if flexible else 0)
    return splice(bare, tail_bytes, flexible, rows)


def encode_metadata_response(
    version: int,
    *,
    brokers: tuple[MetadataResponseBroker, ...],
    cluster_id: str | None,
    controller_id: int,
    topic_blobs: Sequence[bytes],
    throttle_time_ms: int = 0,
    cluster_authorized_operations: int = NO_OPERATIONS,
) -> bytes:
    """Encode a response from topics encoded by `encode_metadata_topic` for the same version."""
    bare = encode(
        MetadataResponse(
            throttle_time_ms=throttle_time_ms,
            brokers=brokers,
            cluster_id=cluster_id,
            controller_id=controller_id,
            cluster_authorized_operations=cluster_authorized_operations,
        ),
        version,
    )
    tail_bytes = (4 if 8 <= version <= 10 else 0) + (1 if version >= 9 else 0)
    return splice(bare, tail_bytes, version >= 9, topic_blobs)


def splice(bare: bytes, tail_bytes: int, flexible: bool, elements: Sequence[bytes]) -> bytes:
    """Insert elements into the empty array that ends `tail_bytes` bytes before the end of `bare`."""
    at = len(bare) - tail_bytes
    head = bare[: at - (1 if flexible else 4)]
    size = compact_size(len(elements)) if flexible else INT32.pack(len(elements))
    return b"".join([head, size, *elements, bare[at:]])


def pack_partition(version: int, partition: MetadataResponsePartition) -> bytes:
    error_code, index, leader, epoch, replicas, isr, offline = partition
    counts = len(replicas), len(isr), len(offline)
    if version >= 9:
        if max(counts) > 126:  # the size takes more than one byte
            return b"".join(encode_struct(partition, version, flexible=True))
        counts = counts[0] + 1, counts[1] + 1, counts[2] + 1
    pack = partition_struct(version, *map(len, (replicas, isr, offline)))
    leadership = (leader, epoch) if version >= 7 else (leader,)
    nodes = (counts[0], *replicas, counts[1], *isr)
    if version >= 5:
        nodes += (counts[2], *offline)
    return pack(error_code, index, *leadership, *nodes)


@lru_cache(maxsize=1024)
def partition_struct(version: int, replicas: int, isr: int, offline: int) -> Callable[..., bytes]:
    count = "B" if version >= 9 else "i"
    letters = ">hiii" if version >= 7 else ">hii"
    letters += f"{count}{replicas}i{count}{isr}i"
    if version >= 5:
        letters += f"{count}{offline}i"
    return struct.Struct(letters + ("x" if version >= 9 else "")).pack
