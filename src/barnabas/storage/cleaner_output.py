"""Output of a compaction or a repair: a segment in `.cleaned` files that will replace others.

A log has at most one writer of such files, because names could clash (`Log.is_being_rewritten`). The writer runs in a
thread, with its own Disk.
"""

from __future__ import annotations

from barnabas.batch.header import BatchHeader
from barnabas.config.topic import TopicConfig
from barnabas.storage import transaction_index
from barnabas.storage.files import segment_path
from barnabas.storage.segment import Segment
from barnabas.world.ports import Buffer, Disk

CLEANED = ".cleaned"
SWAP = ".swap"
FILES = (".log", ".index", ".timeindex", transaction_index.SUFFIX)


class SegmentOutput:
    """A segment in `.cleaned` files. `add` buffers batches until `write`."""

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, config: TopicConfig, now_ms: int
    ) -> None:
        path = segment_path(directory, base_offset)
        remove_output(disk, directory, base_offset)
        self.disk = disk
        self.segment = Segment(
            disk,
            path,
            base_offset,
            log=disk.open(f"{path}.log{CLEANED}", create=True),
            index_interval=config.index_interval_bytes,
            now_ms=now_ms,
        )
        self.segment.begin_rebuild()
        self.segment.aborted = transaction_index.NO_ENTRIES
        self.waiting: list[Buffer] = []
        self.waiting_bytes = 0

    @property
    def size(self) -> int:
        return self.segment.size + self.waiting_bytes

    def add(self, batch: Buffer, header: BatchHeader) -> None:
        self.segment.index_batch(self.size, header)
        self.waiting.append(batch)
        self.waiting_bytes += header.size

    def write(self) -> None:
        if self.waiting:
            self.segment.log.append([b"".join(self.waiting)])
            self.segment.size += self.waiting_bytes
            self.waiting, self.waiting_bytes = [], 0

    def finish(self, modified_ms: int) -> None:
        """Write and fsync everything, and set the modification time of the log file."""
        self.write()
        self.disk.sync_now([self.segment.log])
        self.segment.write_indexes(CLEANED, sync=True)
        self.disk.set_modified_ms(self.segment.log.path, modified_ms)

    def close(self) -> None:
        self.segment.close()


def remove_output(disk: Disk, directory: str, base_offset: int) -> None:
    path = segment_path(directory, base_offset)
    for suffix in FILES:
        disk.remove(path + suffix + CLEANED)
