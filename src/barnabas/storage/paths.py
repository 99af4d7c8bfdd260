"""Names of files and directories of a log."""

from __future__ import annotations


def segment_path(directory: str, base_offset: int) -> str:
    """The path that all files of a segment share, without their suffix."""
    return f"{directory}/{base_offset:020d}"


def parent(directory: str) -> str:
    """The directory that holds this one: the log directory, if it is that of a log."""
    return directory.rpartition("/")[0]
