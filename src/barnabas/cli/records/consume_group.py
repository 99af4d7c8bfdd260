"""`barnabas consume TOPIC --group NAME`: several processes share the partitions, and the group remembers what was read.

    barnabas consume orders --group billing -O beginning     in one terminal, and the same in another

What was written to standard output is committed about every second and at the end. Ctrl-C and SIGTERM leave the group
at once, so that the others need not wait until this member is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.cli.groups.lookup import refuse_nameless
from barnabas.cli.terminal.output import note, runs
from barnabas.cli.terminal.signals import raise_on_signals
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Start
from barnabas.client.group_consumer import GroupConsumer
from barnabas.model import TopicPartition


@contextmanager
def joined(cluster: Cluster, group: str, topic: str, start: Start) -> Iterator[GroupConsumer]:
    """A member of the group, on its way in. Should retention overtake the group, what is left is read from its
    beginning."""

    def told(added: list[TopicPartition]) -> None:
        if sys.stderr.isatty():
            numbers = runs([partition.partition for partition in sorted(added)])
            what = (
                f"reads {topic} {numbers}"
                if added
                else "waits: there are more members than partitions"
            )
            note(f"group {group}: this member {what}")

    refuse_nameless("--group", group)
    raise_on_signals()
    if sys.stderr.isatty():
        note(f"group {group}: joining")
    with GroupConsumer(
        cluster, group, [topic], start=start, reset=Beginning(), on_assigned=told
    ) as consumer:
        yield consumer
