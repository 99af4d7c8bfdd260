"""The manifest of an archive: which files belong to it, and which offsets they hold. Pure.

    DIR/orders/_manifest.json
    DIR/orders/date=2026-11-17/partition=3/00000000000000001200.parquet     named after its first offset

Only files in the manifest belong to the archive. A run writes new files first and replaces the manifest last. So the
archive changes in one step, and files that are not in the manifest are leftovers of a run that was killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from barnabas.jobs.errors import JobRefused
from barnabas.jobs.topic_state import TopicState
from barnabas.model import ZERO_ID
from barnabas.spark.planning import LogSpan

VERSION = 1
NAME = "_manifest.json"
SUFFIX = ".parquet"


class ArchivedFile(Struct, frozen=True, kw_only=True):
    """A Parquet file of an archive. `path` is relative to the directory of the topic."""

    path: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    bytes: int
    crc32c: int
    """Checksum of the whole file."""


class ArchivedPartition(Struct, frozen=True, kw_only=True):
    """Offsets of a partition in an archive: from `start` up to, not including, `end`."""

    partition: int
    start: int
    end: int


class Manifest(Struct, frozen=True, kw_only=True):
    """The content of an archive. `settings` are those that were set on the topic at the last run.

    `partitions` is empty until the first run is complete.
    """

    version: int = VERSION
    topic: str
    topic_id: UUID
    partition_count: int
    settings: dict[str, str]
    partitions: tuple[ArchivedPartition, ...]
    files: tuple[ArchivedFile, ...]

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)

    def records_by_partition(self) -> dict[int, int]:
        found = dict.fromkeys(range(self.partition_count), 0)
        for file in self.files:
            found[file.partition] += file.records
        return found


def encode_manifest(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode_manifest(data: bytes, path: str) -> Manifest:
    """Parse a manifest. Raises JobRefused if it is damaged or of another version."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        why = f"{path} cannot be read: {error}"
        hint = "restore it from a backup, or archive the topic into another directory"
        raise JobRefused(f"{why}; {hint}") from None
    if manifest.version != VERSION:
        why = f"{path} has version {manifest.version}, but this release reads version {VERSION}"
        raise JobRefused(f"{why}; use the release that wrote it")
    numbers = [each.partition for each in manifest.partitions]
    if numbers != list(range(manifest.partition_count)) or any(
        file.partition not in numbers for file in manifest.files
    ):
        why = (
            f"{path} contradicts itself: its partitions are not 0 to {manifest.partition_count - 1}"
        )
        raise JobRefused(f"{why}; restore it from a backup")
    return manifest


def plan_archive(state: TopicState, manifest: Manifest | None) -> dict[int, LogSpan]:
    """Return the offsets of each partition that the archive lacks, without empty spans.

    Raises JobRefused if the topic is not the archived one, or no longer has records that the archive lacks.
    """
    if manifest is not None:
        check_same_topic(state, manifest)
    if manifest is None or not manifest.partitions:
        return {number: span for number, span in enumerate(state.spans) if span[0] < span[1]}
    archived = {each.partition: each.end for each in manifest.partitions}
    spans = {}
    for number, span in enumerate(state.spans):
        # Partitions that were added since the last run are archived from offset 0.
        start = archived.get(number, 0)
        another = "archive into another directory to keep the remaining records"
        if span.earliest > start:
            why = f"{state.name}-{number} lost the offsets {start} to {span.earliest - 1} since the last run"
            raise JobRefused(f"{why} (retention, or deleted records); {another}")
        if span.latest < start:
            why = f"{state.name}-{number} ends at {span.latest}, but the archive has offsets up to {start - 1}"
            raise JobRefused(f"{why}: the log was truncated; {another}")
        if start < span.latest:
            spans[number] = LogSpan(start, span.latest)
    return spans


def check_same_topic(state: TopicState, manifest: Manifest) -> None:
    """Raise JobRefused if the manifest is that of another topic, or of an earlier topic with the same name."""
    hint = "archive into another directory"
    if state.name != manifest.topic:
        raise JobRefused(
            f"the directory has the archive of topic {manifest.topic}, not {state.name}; {hint}"
        )
    if ZERO_ID not in (state.id, manifest.topic_id) and state.id != manifest.topic_id:
        why = f"topic {state.name} was deleted and created again since the last run"
        raise JobRefused(f"{why}: its id is {state.id}, not {manifest.topic_id}; {hint}")
    if state.partition_count < manifest.partition_count:
        why = f"topic {state.name} has {state.partition_count} partitions, but the archive has "
        raise JobRefused(f"{why}{manifest.partition_count}; {hint}")


def empty_manifest(state: TopicState) -> Manifest:
    """Return the manifest of an archive without records."""
    return Manifest(
        topic=state.name,
        topic_id=state.id,
        partition_count=state.partition_count,
        settings=dict(sorted(state.settings.items())),
        partitions=tuple(
            ArchivedPartition(partition=number, start=span.earliest, end=span.earliest)
            for number, span in enumerate(state.spans)
        ),
        files=(),
    )


def begun_manifest(state: TopicState) -> Manifest:
    """Return the manifest that the first run writes before its first file."""
    return replace(empty_manifest(state), partition_count=0, partitions=())


def extend_manifest(
    manifest: Manifest | None, state: TopicState, files: Iterable[ArchivedFile]
) -> Manifest:
    """Return the manifest after a run that added all records of `state` that the archive lacked."""
    old = manifest if manifest is not None and manifest.partitions else empty_manifest(state)
    starts = dict.fromkeys(range(state.partition_count), 0)
    starts |= {each.partition: each.start for each in old.partitions}
    return replace(
        empty_manifest(state),
        partitions=tuple(
            ArchivedPartition(partition=number, start=starts[number], end=span.latest)
            for number, span in enumerate(state.spans)
        ),
        files=tuple(sorted([*old.files, *files], key=file_order)),
    )


def file_order(file: ArchivedFile) -> tuple[int, int]:
    return file.partition, file.first_offset


def archived_path(date: str, partition: int, first_offset: int) -> str:
    """Return the path of a file in the directory of its topic.

    >>> archived_path("2026-11-17", 3, 1200)
    'date=2026-11-17/partition=3/00000000000000001200.parquet'
    """
    return f"date={date}/partition={partition}/{first_offset:020}{SUFFIX}"


def staged_path(path: str, attempt: str) -> str:
    """Return the path of a file in a staging directory. `attempt` has no hyphen.

    >>> staged_path("date=2026-11-17/partition=3/00000000000000001200.parquet", "7f")
    'date=2026-11-17/partition=3/00000000000000001200-7f.parquet'
    """
    return f"{path.removesuffix(SUFFIX)}-{attempt}{SUFFIX}"


def published_path(staged: str) -> str:
    """Return the path in the archive of a staged file.

    >>> published_path("date=2026-11-17/partition=3/00000000000000001200-7f.parquet")
    'date=2026-11-17/partition=3/00000000000000001200.parquet'
    """
    return staged.rpartition("-")[0] + SUFFIX


def has_gaps(files: Sequence[ArchivedFile]) -> bool:
    """Return whether offsets between the first and the last one of a partition are missing, as after compaction."""
    spans: dict[int, tuple[int, int, int]] = {}
    for file in files:
        first, last, records = spans.get(file.partition, (file.first_offset, file.last_offset, 0))
        spans[file.partition] = (
            min(first, file.first_offset),
            max(last, file.last_offset),
            records + file.records,
        )
    return any(last - first + 1 != records for first, last, records in spans.values())
