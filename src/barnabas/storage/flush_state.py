"""Flush state of one log: the recovery point, and the files and directories that wait for an fsync.

    begin() ─► Flush ─► the caller fsyncs it outside the event loop ─► end() advances the recovery point

Appends continue during a flush and belong to the next one. Flushes may overlap, so `begin` changes no counter: each
Flush has the values as of its start, and `end` advances the counters to them.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.storage.files import parent
from barnabas.world.ports import Disk, File

NOTHING_UNFLUSHED = -1


class Flush(NamedTuple):
    """The files and directories to fsync before the recovery point may advance to `up_to_offset`."""

    files: tuple[File, ...]
    """Opened for this flush, except the last one, which is the active segment."""
    directories: tuple[str, ...]
    up_to_offset: int
    paths_taken: int
    """Value of `FlushState.paths_synced` after this flush."""
    directory_changes: int


class FlushState:
    """Flush state of one log. Invariant: all records below `recovery_point` and their index files are on disk."""

    __slots__ = (
        "directory",
        "directory_changes",
        "directory_synced",
        "disk",
        "is_parent_synced",
        "paths_synced",
        "recovery_point",
        "unflushed_since_ms",
        "unsynced_paths",
    )

    def __init__(self, disk: Disk, directory: str, recovery_point: int) -> None:
        self.disk = disk
        self.directory = directory
        self.recovery_point = recovery_point
        self.unflushed_since_ms = NOTHING_UNFLUSHED
        """Wall-clock time of the first append after the start of the last flush."""
        self.unsynced_paths: list[str] = []
        self.paths_synced = 0
        """Number of paths that were synced and removed from `unsynced_paths` so far."""
        self.directory_changes = 0
        """Number of times that files in the directory were created, renamed or removed."""
        self.directory_synced = 0
        """The value of `directory_changes` that is on disk."""
        self.is_parent_synced = True

    def add_files(self, *paths: str) -> None:
        """Include files that were just created or replaced in the next flush."""
        self.unsynced_paths += paths
        self.directory_changes += 1

    def add_directory_change(self) -> None:
        self.directory_changes += 1

    def add_directory(self) -> None:
        """Include the entry of the directory itself, in its parent, in the next flush."""
        self.is_parent_synced = False
        self.directory_changes += 1

    def move(self, directory: str) -> None:
        """Adjust the paths after the directory was renamed. The caller fsyncs the parent."""
        self.directory = directory
        self.unsynced_paths = [
            f"{directory}/{path.rpartition('/')[2]}" for path in self.unsynced_paths
        ]

    def begin(self, active: File, log_end_offset: int) -> Flush:
        directories: tuple[str, ...] = ()
        if self.directory_changes > self.directory_synced:
            directories = (self.directory,)
            if not self.is_parent_synced:
                directories = (self.directory, parent(self.directory))
        disk = self.disk
        files = [
            disk.open(path) for path in dict.fromkeys(self.unsynced_paths) if disk.exists(path)
        ]
        self.unflushed_since_ms = NOTHING_UNFLUSHED
        return Flush(
            (*files, active),
            directories,
            log_end_offset,
            self.paths_synced + len(self.unsynced_paths),
            self.directory_changes,
        )

    def end(self, flush: Flush, log_end_offset: int) -> None:
        """Record that `flush` is on disk. `log_end_offset` is lower than at its start if the log was truncated."""
        for file in flush.files[:-1]:
            file.close()
        done = flush.paths_taken - self.paths_synced
        if done > 0:
            del self.unsynced_paths[:done]
            self.paths_synced = flush.paths_taken
        if flush.directories:
            self.directory_synced = max(self.directory_synced, flush.directory_changes)
            self.is_parent_synced = True
        reached = min(flush.up_to_offset, log_end_offset)
        self.recovery_point = max(self.recovery_point, reached)

    def sync_directory(self) -> None:
        """Fsync the directory now if it has changed."""
        if self.directory_changes > self.directory_synced:
            self.disk.sync_now([], [self.directory])
            self.directory_synced = self.directory_changes

    def truncate(self, log_end_offset: int) -> bool:
        """Lower the recovery point to the end of a truncated log. Return False if it was not higher."""
        if self.recovery_point <= log_end_offset:
            return False
        self.recovery_point = log_end_offset
        return True
