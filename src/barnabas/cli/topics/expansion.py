"""Preview of an expansion: the keys that change partition, and the consumer groups that could miss records.

A key maps to the partition `hash % count`. Only hashes with the same remainder for both counts stay: a share of
`before / lcm(before, after)`, whatever the hash function is. From 3 to 6 partitions, half of the keys stay; from 3 to
4, a quarter.

A broker does not know the settings of its clients. The preview says what is known and what is assumed.
"""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from math import lcm
from typing import Any

from barnabas.cli.terminal.output import plural, wrap
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin, GroupView
from barnabas.errors import ApiError
from barnabas.model import TopicPartition
from barnabas.wire.consumer_protocol import PROTOCOL_TYPE

SUBSCRIBED, STOPPED, UNKNOWN_READER = "subscribed", "stopped", "unknown"
CLIENTS_SHOWN_MAX = 3
METADATA_MAX_AGE = "metadata.max.age.ms (default 5 min)"
PARTITIONERS = (
    "partitioners that take hash(key) modulo the number of partitions: Java and kafka-python (murmur2), "
    "librdkafka (CRC32)"
)
ASSUMPTIONS = (
    "producers use one of these partitioners, and all keys are equally frequent",
    "auto.offset.reset and metadata.max.age.ms are settings of the clients: brokers do not know them",
    "consumers that use no group are not known to the brokers; those that list their partitions need a new list",
)


def moved_share(before: int, after: int) -> Fraction:
    """Return the share of keys that map to another partition.

    >>> moved_share(3, 6), moved_share(3, 4), moved_share(3, 3)
    (Fraction(1, 2), Fraction(3, 4), Fraction(0, 1))
    """
    return 1 - Fraction(before, lcm(before, after))


def preview_document(
    before: int, after: int, groups: list[dict[str, Any]] | None
) -> dict[str, Any]:
    """Return the facts of a preview. `groups` is None if the groups could not be read."""
    share = moved_share(before, after)
    return {
        "keys_moved_fraction": str(share),
        "keys_moved_percent": round(float(100 * share), 2),
        "applies_to": PARTITIONERS,
        "new_partitions": list(range(before, after)),
        "groups": groups,
        "assumptions": list(ASSUMPTIONS),
    }


def read_groups(cluster: Cluster, topic: str) -> list[dict[str, Any]] | None:
    """Return the groups that read the topic or have offsets for it; None if the groups cannot be read."""
    admin = GroupAdmin(cluster)
    found = []
    try:
        for listed in admin.list_groups():
            committed = admin.committed_offsets(listed.group_id)
            view = admin.describe_group(listed.group_id)
            if is_reader(view, committed, topic):
                offsets = sum(partition.topic == topic for partition in committed)
                found.append(group_facts(view, topic, offsets))
    except ApiError:
        return None
    return found


def is_reader(view: GroupView, committed: Collection[TopicPartition], topic: str) -> bool:
    assigned = {each for member in view.members for each in member.partitions}
    return any(partition.topic == topic for partition in {*committed, *assigned})


def group_facts(view: GroupView, topic: str, offsets: int) -> dict[str, Any]:
    """Return what a group must do to read new partitions, and what it could miss."""
    readers = [
        member
        for member in view.members
        if any(partition.topic == topic for partition in member.partitions)
    ]
    kind = reader_kind(view)
    return {
        "group": view.group_id,
        "state": view.state,
        "members": len(view.members),
        "clients": [f"{member.client_id} at {member.host}" for member in readers],
        "committed_partitions": offsets,
        "reader": kind,
        "needs_restart": {SUBSCRIBED: False, STOPPED: False}.get(kind),
        "discovers_partitions": DISCOVERY[kind],
        "with_latest": WITH_LATEST[kind],
    }


def reader_kind(view: GroupView) -> str:
    """A group with members subscribes. An empty group was a subscriber if it has the protocol type of consumers."""
    if view.protocol_type != PROTOCOL_TYPE:
        return UNKNOWN_READER
    return SUBSCRIBED if view.members else STOPPED


DISCOVERY = {
    SUBSCRIBED: f"without a restart, within {METADATA_MAX_AGE}; then the group rebalances",
    STOPPED: "when its consumers start again",
    UNKNOWN_READER: "if its consumers subscribe: as above; if they list their partitions: after a change and a restart",
}
WITH_LATEST = {
    SUBSCRIBED: "misses records that are written to a new partition before it discovers it",
    STOPPED: "misses all records that are written to new partitions before it starts again",
    UNKNOWN_READER: "misses records that are written to a new partition before it reads it the first time",
}


def preview_text(preview: dict[str, Any]) -> str:
    """Return the preview in words."""
    percent = f"{preview['keys_moved_percent']:g} %"
    lines = [
        f"keys: {preview['keys_moved_fraction']} ({percent}) of the keys map to another partition; existing records "
        "stay where they are",
        f"  this holds for {preview['applies_to']}",
    ]
    groups = preview["groups"]
    if groups is None:
        lines.append("groups: could not be read; see `barnabas groups list`")
    elif not groups:
        lines.append("groups: none reads this topic or has offsets for it")
    else:
        lines.append(
            f"groups: {plural(len(groups), 'group')} with members or offsets on this topic"
        )
        for group in groups:
            lines += group_lines(group)
    lines += ["assumed:", *(f"  {each}" for each in preview["assumptions"])]
    return "\n".join(wrap(line, indent=len(line) - len(line.lstrip()) + 2) for line in lines)


def group_lines(group: dict[str, Any]) -> list[str]:
    clients = ", ".join(group["clients"][:CLIENTS_SHOWN_MAX])
    more = ", …" if len(group["clients"]) > CLIENTS_SHOWN_MAX else ""
    members = plural(group["members"], "member") + (f" ({clients}{more})" if clients else "")
    offsets = f"offsets for {plural(group['committed_partitions'], 'partition')}"
    return [
        f"  {group['group']}: {group['state']}, {members}, {offsets}",
        f"    finds new partitions {group['discovers_partitions']}",
        f"    with auto.offset.reset=latest it {group['with_latest']}; with earliest it misses nothing",
    ]
