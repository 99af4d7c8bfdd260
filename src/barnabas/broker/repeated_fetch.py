"""Fetches that equal an earlier one of their connection except for the offsets: served without decoding and waiting."""

from __future__ import annotations

from barnabas.broker.context import BrokerContext
from barnabas.errors import ApiError, StorageError
from barnabas.model import ZERO_ID
from barnabas.wire.fast.repeated_fetch import PartitionFetchResult, RepeatedFetch
from barnabas.world.ports import Part


def handle_repeated_fetch(
    context: BrokerContext, repeated: RepeatedFetch, frame: memoryview
) -> list[Part] | None:
    """Serve a request that equals an earlier one except for its offsets, if it need not wait and has no error.

    Otherwise change nothing and return None: `handle` then serves the request.
    """
    replicas, names = context.replicas.partitions, context.metadata.names
    bytes_max = min(repeated.max_bytes, context.config.fetch_max_bytes)
    bytes_left = bytes_max
    results: list[PartitionFetchResult] = []
    name, id_of_name = "", ZERO_ID
    try:
        for wanted, offset in zip(repeated.partitions, repeated.offsets(frame), strict=True):
            topic, topic_id, index, epoch, max_bytes, _ = wanted
            if topic_id is not id_of_name:
                id_of_name, name = topic_id, names.get(topic_id, "")
            partition = replicas.get((topic or name, index))
            if partition is None or (partition.topic_id != topic_id and not topic):
                return None
            partition.require_replica(epoch)
            log = partition.log
            bound = log.watermark
            if offset == bound:
                results.append(PartitionFetchResult(bound, log.log_start_offset, (), 0))
                continue
            found = log.read(offset, min(max_bytes, bytes_left), bound, bytes_left == bytes_max)
            if found.first_incomplete or found.unchecked_segment is not None:
                return None
            bytes_left = max(bytes_left - found.size, 0)
            results.append(
                PartitionFetchResult(bound, log.log_start_offset, found.slices, found.size)
            )
    except (ApiError, StorageError):
        return None
    if bytes_max - bytes_left < min(repeated.min_bytes, bytes_max):
        return None
    return repeated.encode_response(frame, results)
