"""Reads a broker's log directory without the broker.

Catches clients that silently send something other than the test requested.
"""

from pathlib import Path
from typing import NamedTuple

from barnabas.batch.compression import Compression
from barnabas.batch.header import BatchHeader, batch_headers, crc_is_valid
from barnabas.batch.records import Record, records


class StoredBatch(NamedTuple):
    header: BatchHeader
    records: tuple[Record, ...]


class Files:
    """The log directory of one broker."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def batches(self, topic: str, partition: int = 0) -> list[StoredBatch]:
        found = []
        for segment in sorted((self.directory / f"{topic}-{partition}").glob("*.log")):
            data = memoryview(segment.read_bytes())
            for at, header in batch_headers(data):
                assert crc_is_valid(data, at, header), f"checksum of {segment} at {at}"
                found.append(StoredBatch(header, tuple(records(data[at : at + header.size]))))
        return found

    def codecs(self, topic: str, partition: int = 0) -> set[str]:
        """The names of all codecs in use, as clients spell them."""
        return {
            Compression(batch.header.compression).name.lower()
            for batch in self.batches(topic, partition)
        }

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        return [
            record.value for batch in self.batches(topic, partition) for record in batch.records
        ]
