"""Decides when a log rolls its active segment, by segment.bytes, segment.ms and segment.index.bytes."""

from __future__ import annotations

from zlib import crc32

from barnabas.config.topic import TopicConfig
from barnabas.storage.index import MAX_RELATIVE_OFFSET, OFFSET_ENTRY, TIME_ENTRY
from barnabas.storage.segment import Segment


class RollPolicy:
    """The limits of one log, computed from its settings once."""

    __slots__ = ("entries_max", "roll_ms", "segment_bytes")

    def __init__(self, config: TopicConfig, directory: str) -> None:
        """`directory` selects the jitter, so that logs of the same age are not all rolled at once."""
        self.segment_bytes = config.segment_bytes
        index_bytes = config.segment_index_bytes
        # The time index gets one entry more than the offset index, when the segment is closed.
        self.entries_max = min(index_bytes // OFFSET_ENTRY.size, index_bytes // TIME_ENTRY.size - 1)
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        if jitter:
            jitter = crc32(directory.encode()) % jitter
        self.roll_ms = config.segment_ms - jitter
        if config.compacts:
            # The active segment is never compacted, so it must be closed within the compaction lag.
            self.roll_ms = min(config.segment_ms, config.max_compaction_lag_ms) - jitter

    def is_due(
        self, segment: Segment, size: int, timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        """Return whether to roll before an append of `size` bytes, `timestamp` and `last_offset`.

        The age of a segment that was created without a time counts from its first append.
        """
        if segment.size == 0:
            segment.created_ms = segment.created_ms or now_ms
            return last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        first = segment.first_timestamp
        if first < -1:
            first = segment.first_batch_timestamp()
        return (
            segment.size + size > self.segment_bytes
            or (timestamp - first if first >= 0 else now_ms - segment.created_ms) > self.roll_ms
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            or (segment.offsets is not None and len(segment.offsets) >= self.entries_max)
        )

    def bytes_until_roll(self, segment: Segment) -> int:
        """Return the number of bytes that fit into this segment, or into a new one if this one is full."""
        free = self.segment_bytes - segment.size
        return free if free > 0 else self.segment_bytes
