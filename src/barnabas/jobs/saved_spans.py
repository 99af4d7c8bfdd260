"""The offsets that a resize copies, saved in the cluster until it is complete.

The order of the copy depends on all records, so a rerun must copy the same ones, although the source has grown. The
offsets are saved as committed offsets of two consumer groups that no consumer uses: one for the start, one for the end.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.errors import ErrorCode
from barnabas.jobs.errors import JobRefused
from barnabas.jobs.topic_state import TopicState
from barnabas.model import TopicPartition
from barnabas.spark.planning import LogSpan


def span_groups(target: str) -> tuple[str, str]:
    """Return the groups with the first and the last offsets of a copy to this topic."""
    return f"barnabas-resize-{target}-start", f"barnabas-resize-{target}-end"


def save_spans(cluster: Cluster, target: str, source: TopicState) -> None:
    """Save the offsets of the source. The group with the ends is written last: without it, nothing is saved."""
    admin = GroupAdmin(cluster)
    for bound, group in enumerate(span_groups(target)):
        offsets = {
            TopicPartition(source.name, number): span[bound]
            for number, span in enumerate(source.spans)
        }
        admin.set_offsets(group, offsets, metadata=str(source.id))


def load_spans(cluster: Cluster, target: str, source: TopicState) -> dict[int, LogSpan] | None:
    """Return the saved offsets, or None if there are none. Raises JobRefused if they are not of this source."""
    admin = GroupAdmin(cluster)
    starts, ends = (admin.committed_offsets(group) for group in span_groups(target))
    if not ends:
        return None
    hint = f"delete topic {target}, or choose another name"
    for partition in ends:
        if partition.topic != source.name:
            why = f"topic {target} has the beginning of a copy of topic {partition.topic}"
            raise JobRefused(f"{why}, not {source.name}; {hint}")
    if any(each.metadata != str(source.id) for each in ends.values()):
        raise JobRefused(f"topic {source.name} was deleted and created again; {hint}")
    return {
        partition.partition: LogSpan(starts[partition].offset, end.offset)
        for partition, end in ends.items()
        if partition in starts
    }


def check_available(source: TopicState, spans: Mapping[int, LogSpan], target: str) -> None:
    """Raise JobRefused if the source no longer has all records of the spans."""
    for number, span in spans.items():
        found = source.spans[number] if number < source.partition_count else LogSpan(0, 0)
        if found.earliest > span.earliest or found.latest < span.latest:
            why = f"{source.name}-{number} lost records since the copy to {target} began"
            raise JobRefused(f"{why}; delete topic {target}, and run the command again")


def delete_spans(cluster: Cluster, target: str) -> None:
    for error in GroupAdmin(cluster).delete_groups(span_groups(target)).values():
        if error is not None and error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise error
