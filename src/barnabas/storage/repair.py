"""Repair of a corrupt segment with the batches that another replica has at the same offsets.

The log is not truncated, so a follower stays in sync and a leader stays the leader. Only offsets below the high
watermark are copied, where all replicas have the same records. One replica may have compacted more than another, but
readers do not notice this.
"""

from __future__ import annotations

from barnabas.batch.header import batch_headers, crc_is_valid
from barnabas.errors import RemoteWireError, StorageError
from barnabas.storage.aborted_transactions import load_aborted
from barnabas.storage.cleaner import Replacement
from barnabas.storage.cleaner_output import SegmentOutput, remove_output
from barnabas.storage.log import Log
from barnabas.storage.segment import Segment


class Repair:
    """Repair of one closed segment. `add_batches` and `finish` may run in a thread, one at a time."""

    def __init__(self, log: Log, segment: Segment, *, now_ms: int) -> None:
        self.log = log
        self.segment = segment
        self.revision = log.revision
        self.next_offset = segment.base_offset
        self.end_offset = log.next_segment_offset(segment.base_offset)
        self.disk = log.disk.for_thread()
        self.output = SegmentOutput(
            self.disk, log.directory, segment.base_offset, log.config, now_ms
        )
        # The offsets do not change, so the aborted transactions are the same.
        at = log.segments.segments.index(segment)
        self.output.segment.aborted = load_aborted(
            log.disk, log.directory, log.segments, at, end_offset=log.log_end_offset
        )

    @property
    def is_complete(self) -> bool:
        return self.next_offset >= self.end_offset

    @property
    def is_applicable(self) -> bool:
        log = self.log
        return log.revision == self.revision and self.segment in log.segments[:-1]

    def add_batches(self, data: memoryview) -> None:
        """Add batches from `next_offset` on. Raises RemoteWireError if one is corrupt or crosses a segment boundary."""
        for position, header in batch_headers(data):
            if self.is_complete or header.base_offset >= self.end_offset:
                self.next_offset = self.end_offset
                break
            if header.last_offset < self.next_offset:
                continue
            if header.base_offset < self.next_offset or header.next_offset > self.end_offset:
                raise RemoteWireError(
                    f"batch {header.base_offset} crosses a segment boundary of this log"
                )
            if not crc_is_valid(data, position, header):
                raise RemoteWireError(
                    f"batch {header.base_offset} is also corrupt on the other replica"
                )
            self.output.add(bytes(data[position : position + header.size]), header)
            self.next_offset = header.next_offset
        self.output.write()

    def finish(self) -> Replacement:
        self.output.finish(self.disk.modified_ms(self.segment.log.path))
        self.output.close()
        return Replacement(old=(self.segment,), base_offset=self.segment.base_offset)

    def discard(self) -> None:
        try:
            self.output.close()
            remove_output(self.disk, self.log.directory, self.segment.base_offset)
        except StorageError:
            return  # the directory is deleted or offline
