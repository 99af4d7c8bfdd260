"""One pass of a resize, saved in the cluster: a rerun copies the same records to the same places.

The order of a pass depends on all its records, so a rerun must copy the same ones, although the source has grown. A
pass is saved as committed offsets of two consumer groups that no consumer uses:

    barnabas-resize-NEW-start    the first offset of each source partition; the first offset in each target partition
    barnabas-resize-NEW-end      the end of each source partition

Each group is written with one request, the start first. A run that is killed between the two leaves no end, or the end
of the pass before: then the saved pass is empty, which means that everything up to it is copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.errors import ErrorCode
from barnabas.jobs.copy_topic import CopiedPartition
from barnabas.jobs.errors import JobRefused
from barnabas.jobs.topic_state import TopicState
from barnabas.model import TopicPartition
from barnabas.spark.planning import LogSpan

STATE_GROUPS = "barnabas-resize-"
"""Prefix of the groups that keep the state of a resize."""


class CopyPass(Struct, frozen=True, kw_only=True):
    """The offsets of the source to copy, and the offset of the first copied record in each target partition.

    Only the first pass has no `starts`: it begins at offset 0.
    """

    spans: Mapping[int, LogSpan]
    starts: Mapping[int, int] = {}

    @property
    def is_empty(self) -> bool:
        return all(span.latest <= span.earliest for span in self.spans.values())


# ---- pure -------------------------------------------------------------------------------------------------------


def finished_pass(done: CopyPass, copied: Sequence[CopiedPartition]) -> CopyPass:
    """Return the empty pass after a complete one."""
    ends = {number: LogSpan(span.latest, span.latest) for number, span in done.spans.items()}
    starts = {
        number: done.starts.get(number, 0) + skipped + written
        for number, skipped, written in copied
    }
    return CopyPass(spans=ends, starts=starts)


def next_pass(finished: CopyPass, source: TopicState) -> CopyPass:
    """Return the pass for the records that were added since. Records that the source has deleted are left out."""
    spans = {}
    for number, span in enumerate(source.spans):
        copied = finished.spans[number].latest if number in finished.spans else 0
        start = max(copied, span.earliest)
        spans[number] = LogSpan(start, max(start, span.latest))
    return CopyPass(spans=spans, starts=finished.starts)


def check_available(source: TopicState, spans: Mapping[int, LogSpan], target: str) -> None:
    """Raise JobRefused if the source no longer has all records of the spans."""
    for number, span in spans.items():
        found = source.spans[number] if number < source.partition_count else LogSpan(0, 0)
        is_empty = span.latest <= span.earliest
        if found.latest < span.latest or (found.earliest > span.earliest and not is_empty):
            why = f"{source.name}-{number} lost records since the copy to {target} began"
            raise JobRefused(f"{why}; delete topic {target}, and run the command again")


# ---- saved pass -------------------------------------------------------------------------------------------------


def state_groups(target: str) -> tuple[str, str]:
    """Return the groups with the start and the end of a pass to this topic."""
    return f"{STATE_GROUPS}{target}-start", f"{STATE_GROUPS}{target}-end"


def save_pass(cluster: Cluster, target: str, source: TopicState, copy_pass: CopyPass) -> None:
    """Save a pass in place of the one before. Raises ApiError."""
    admin = GroupAdmin(cluster)
    start_group, end_group = state_groups(target)
    starts = {
        **{TopicPartition(source.name, each): span[0] for each, span in copy_pass.spans.items()},
        **{TopicPartition(target, each): offset for each, offset in copy_pass.starts.items()},
    }
    ends = {TopicPartition(source.name, each): span[1] for each, span in copy_pass.spans.items()}
    admin.set_offsets(start_group, starts, metadata=str(source.id))
    admin.set_offsets(end_group, ends, metadata=str(source.id))


def load_pass(cluster: Cluster, target: str, source: TopicState) -> CopyPass | None:
    """Return the saved pass, or None if there is none. Raises JobRefused if it is not of this source."""
    admin = GroupAdmin(cluster)
    starts, ends = (admin.committed_offsets(group) for group in state_groups(target))
    if not ends or not ends.keys() <= starts.keys():
        return None
    hint = f"delete topic {target}, or choose another name"
    for partition in ends:
        if partition.topic != source.name:
            why = f"topic {target} has the beginning of a copy of topic {partition.topic}"
            raise JobRefused(f"{why}, not {source.name}; {hint}")
    if any(each.metadata != str(source.id) for each in ends.values()):
        raise JobRefused(f"topic {source.name} was deleted and created again; {hint}")
    return CopyPass(
        spans={
            each.partition: LogSpan(starts[each].offset, max(starts[each].offset, end.offset))
            for each, end in ends.items()
        },
        starts={
            each.partition: found.offset for each, found in starts.items() if each.topic == target
        },
    )


def delete_pass(cluster: Cluster, target: str) -> None:
    for error in GroupAdmin(cluster).delete_groups(state_groups(target)).values():
        if error is not None and error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise error
