"""What of a log must be fsynced, told before and noted after: the fsync itself is done by others, off the loop.

Flushes may overlap, so each counts how far it went and nothing is struck off before one has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.world.ports import File

if TYPE_CHECKING:
    from barnabas.storage.log import Log


class Flush(NamedTuple):
    """What must be fsynced before the recovery point may stand at `up_to_offset`."""

    files: tuple[File, ...]
    directories: tuple[str, ...]
    up_to_offset: int
    paths_taken: int
    directory_changes: int


def begin(log: Log) -> Flush:
    directories: tuple[str, ...] = ()
    if log.directory_changes > log.directory_synced:
        directories = (log.directory,)
        if not log.parent_synced:
            directories = (log.directory, log.directory.rpartition("/")[0])
    files = [
        log.disk.open(path) for path in dict.fromkeys(log.unsynced_paths) if log.disk.exists(path)
    ]
    log.unflushed_since_ms = -1
    return Flush(
        (*files, log.active.log),
        directories,
        log.log_end_offset,
        log.paths_synced + len(log.unsynced_paths),
        log.directory_changes,
    )


def end(log: Log, flush: Flush) -> None:
    for file in flush.files[:-1]:
        file.close()
    done = flush.paths_taken - log.paths_synced
    if done > 0:
        del log.unsynced_paths[:done]
        log.paths_synced = flush.paths_taken
    if flush.directories:
        log.directory_synced = max(log.directory_synced, flush.directory_changes)
        log.parent_synced = True
    reached = min(flush.up_to_offset, log.log_end_offset)
    log.recovery_point = max(log.recovery_point, reached)
