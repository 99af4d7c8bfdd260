"""Paths of the files of a log, and bounded reads of the small ones.

A damaged file system can leave a checkpoint or a snapshot of many gigabytes. Such a file is never read completely: each
kind of file has a limit far above any valid size, and only the bytes up to it are read. They then fail the checks of
the file's format.
"""

from __future__ import annotations

import logging

from barnabas.world.ports import Disk

logger = logging.getLogger(__name__)

OFFSETS_MAX = 16 << 20
"""A checkpoint of one log directory: about 400,000 partitions."""
EPOCHS_MAX = 4 << 20
"""A leader-epoch-checkpoint: about 200,000 epochs."""
SNAPSHOT_MAX = 16 << 20
"""A producer snapshot: about 360,000 producers."""
PROPERTIES_MAX = 64 << 10
"""meta.properties and partition.metadata."""
INDEX_MAX = 16 << 20
"""An index file, unless a larger one is valid for its segment. Kafka preallocates 10 MiB by default."""


def segment_path(directory: str, base_offset: int) -> str:
    """Return the common path of the files of a segment, without suffix."""
    return f"{directory}/{base_offset:020d}"


def parent(directory: str) -> str:
    """Return the parent directory. For the directory of a log this is the log directory."""
    return directory.rpartition("/")[0]


def read_head(disk: Disk, path: str, limit: int) -> bytes:
    """Return the first `limit` bytes of a file."""
    if disk.size(path) <= limit:
        return disk.read_bytes(path)
    logger.warning("file is too large, reading only its beginning path=%s limit=%d", path, limit)
    file = disk.open(path)
    try:
        return file.read(0, limit)
    finally:
        file.close()
