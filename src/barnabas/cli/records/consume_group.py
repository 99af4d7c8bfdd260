"""`barnabas consume TOPIC --group NAME`: consume as a member of a consumer group.

    barnabas consume orders --group billing -O beginning     in one terminal, and the same in another

Offsets of records that were written to standard output are committed about every second and at the end. On Ctrl-C and
SIGTERM the member leaves the group, so that the others do not wait for its session to time out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.cli.groups.lookup import reject_empty_name
from barnabas.cli.terminal.output import number_ranges, print_note
from barnabas.cli.terminal.signals import raise_on_signals
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Start
from barnabas.client.group_consumer import GroupConsumer
from barnabas.model import TopicPartition


@contextmanager
def join_group(cluster: Cluster, group: str, topic: str, start: Start) -> Iterator[GroupConsumer]:
    """Return a member of the group. If retention overtakes the group, it continues with the oldest record left."""

    def report_assignment(added: list[TopicPartition]) -> None:
        if sys.stderr.isatty():
            numbers = number_ranges([partition.partition for partition in sorted(added)])
            what = (
                f"reads {topic} {numbers}"
                if added
                else "waits: there are more members than partitions"
            )
            print_note(f"group {group}: this member {what}")

    reject_empty_name("--group", group)
    raise_on_signals()
    if sys.stderr.isatty():
        print_note(f"group {group}: joining")
    with GroupConsumer(
        cluster, group, [topic], start=start, reset=Beginning(), on_assigned=report_assignment
    ) as consumer:
        yield consumer
