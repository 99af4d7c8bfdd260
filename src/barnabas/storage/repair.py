"""A damaged segment, made anew from the batches that another replica has at the same offsets.

Nothing is cut and nothing is missing meanwhile: the log is as long as before, so a follower stays in sync and a leader
leads on. What is copied lies below the high watermark, where all replicas have the same records; one of them may have
compacted more of it than another, which makes no difference to a reader.
"""

from __future__ import annotations

from barnabas.errors import RemoteWireError, StorageError
from barnabas.storage.cleaner import Replacement
from barnabas.storage.cleaner_output import Output, remove_output
from barnabas.storage.log import Log
from barnabas.storage.segment import Segment
from barnabas.wire.records import batch_headers, crc_is_valid


class Repair:
    """Of one closed segment. `take` and `finish` may be run in a thread, one at a time."""

    def __init__(self, log: Log, segment: Segment, *, now_ms: int) -> None:
        self.log = log
        self.segment = segment
        self.cuts = log.cuts
        self.next_offset = segment.base_offset
        self.end_offset = log.next_segment_offset(segment.base_offset)
        self.disk = log.disk.aside()
        self.output = Output(self.disk, log.directory, segment.base_offset, log.config, now_ms)

    @property
    def is_complete(self) -> bool:
        return self.next_offset >= self.end_offset

    @property
    def is_still_wanted(self) -> bool:
        log = self.log
        return log.cuts == self.cuts and self.segment in log.segments[:-1]

    def take(self, data: memoryview) -> None:
        """Batches as they came from `next_offset` on. RemoteWireError if they are damaged there, too, or do not fit."""
        for position, header in batch_headers(data):
            if self.is_complete or header.base_offset >= self.end_offset:
                self.next_offset = self.end_offset
                break
            if header.last_offset < self.next_offset:
                continue
            if header.base_offset < self.next_offset or header.next_offset > self.end_offset:
                raise RemoteWireError(f"batch {header.base_offset} lies across our segments")
            if not crc_is_valid(data, position, header):
                raise RemoteWireError(f"batch {header.base_offset} is damaged there, too")
            self.output.add(bytes(data[position : position + header.size]), header)
            self.next_offset = header.next_offset
        self.output.write()

    def finish(self) -> Replacement:
        self.output.finish(self.disk.modified_ms(self.segment.log.path))
        self.output.close()
        return Replacement(old=(self.segment,), base_offset=self.segment.base_offset)

    def throw_away(self) -> None:
        try:
            self.output.close()
            remove_output(self.disk, self.log.directory, self.segment.base_offset)
        except StorageError:
            return  # the directory is gone with its topic, or broken
