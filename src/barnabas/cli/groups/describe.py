"""`barnabas groups describe`: members, their partitions, and the lag.

Lag is the number of records from the committed offset to the end of a partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.groups.list import NO_GROUPS
from barnabas.cli.groups.lookup import complete_groups, find_group, group_names
from barnabas.cli.options import watch_option
from barnabas.cli.terminal.output import (
    OutputFormat,
    format_table,
    number_ranges,
    plural,
    show_or_watch,
)
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin, GroupView, MemberView
from barnabas.client.group_offsets import GroupOffset
from barnabas.client.offsets import latest_offsets
from barnabas.errors import ApiError
from barnabas.model import TopicPartition


@click.command("describe")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_groups)
@watch_option
@cluster_command
def describe_groups(
    cluster: Cluster, names: tuple[str, ...], watch: bool, output: OutputFormat
) -> None:
    """Show members, offsets and lag of the named groups, or of all groups."""
    admin = GroupAdmin(cluster)

    def load() -> dict[str, Any]:
        wanted = dict.fromkeys(names or group_names(admin))
        return {"groups": [describe_group(cluster, admin, name) for name in wanted]}

    show_or_watch(watch, output, load, described_groups_text)


def describe_group(cluster: Cluster, admin: GroupAdmin, name: str) -> dict[str, Any]:
    view = find_group(admin, name)
    committed = admin.committed_offsets(name)
    assigned = {partition for member in view.members for partition in member.partitions}
    ends = end_offsets(cluster, committed.keys() | assigned)
    return group_document(view, committed, ends)


def end_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the end offset of each partition. Partitions of deleted topics or without a leader are left out."""
    wanted = sorted(partitions)
    view = cluster.refresh(sorted({partition.topic for partition in wanted}))
    led = []
    for partition in wanted:
        with suppress(ApiError):
            view.leader(partition)
            led.append(partition)
    return latest_offsets(cluster, led)


def group_document(
    view: GroupView,
    committed: Mapping[TopicPartition, GroupOffset],
    ends: Mapping[TopicPartition, int],
) -> dict[str, Any]:
    readers = {partition: member for member in view.members for partition in member.partitions}
    offsets = [
        offset_document(partition, committed.get(partition), ends.get(partition), readers)
        for partition in sorted(committed.keys() | readers.keys())
    ]
    lags = [offset["lag"] for offset in offsets if offset["lag"] is not None]
    return {
        "group": view.group_id,
        "state": view.state,
        "protocol_type": view.protocol_type,
        "assignor": view.assignor or None,
        "coordinator": view.coordinator,
        "lag": sum(lags) if lags else None,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": [
                    {"topic": partition.topic, "partition": partition.partition}
                    for partition in member.partitions
                ],
            }
            for member in view.members
        ],
        "offsets": offsets,
    }


def offset_document(
    partition: TopicPartition,
    committed: GroupOffset | None,
    end: int | None,
    readers: Mapping[TopicPartition, MemberView],
) -> dict[str, Any]:
    reader = readers.get(partition)
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed": None if committed is None else committed.offset,
        "end": end,
        # A committed offset can be after the end if the topic was deleted and created again.
        "lag": None if committed is None or end is None else max(0, end - committed.offset),
        "member_id": None if reader is None else reader.member_id,
    }


def described_groups_text(document: dict[str, Any]) -> str:
    return "\n\n".join(group_text(group) for group in document["groups"]) or NO_GROUPS


def group_text(group: dict[str, Any]) -> str:
    facts = [group["state"], plural(len(group["members"]), "member")]
    facts += [f"assignor {group['assignor']}"] if group["assignor"] else []
    facts += [f"lag {group['lag']:,}"] if group["lag"] is not None else []
    lines = [f"group {group['group']}: {', '.join(facts)}"]
    lines.append(f"  coordinator {group['coordinator']}")
    ids = short_member_ids(group["members"])
    if group["offsets"]:
        lines.append(offsets_table(group, ids))
    if group["members"]:
        lines += ["", members_table(group, ids)]
    return "\n".join(lines)


def offsets_table(group: dict[str, Any], ids: dict[str, str]) -> str:
    keys = ["topic", "partition", "committed", "end", "lag"]
    rows = [
        [*(offset[key] for key in keys), ids.get(offset["member_id"], "")]
        for offset in group["offsets"]
    ]
    return format_table([*keys, "member"], rows, null="-")


def members_table(group: dict[str, Any], ids: dict[str, str]) -> str:
    rows = [
        [ids[member["member_id"]], member["client_id"], member["host"], partitions_text(member)]
        for member in group["members"]
    ]
    return format_table(["member", "client", "host", "partitions"], rows)


def short_member_ids(members: list[dict[str, Any]]) -> dict[str, str]:
    """Return a short name for each member id: the instance id, or else the random part of the member id.

    The random part is cut at its first dash if all names stay unique:

    barnabas-0b8d1c77-… and barnabas-91e2f0aa-…  →  0b8d1c77 and 91e2f0aa
    """
    long, short = {}, {}
    for member in members:
        member_id, instance_id = member["member_id"], member["instance_id"]
        random_part = member_id.removeprefix(f"{member['client_id']}-")
        long[member_id] = instance_id or random_part
        short[member_id] = instance_id or random_part.partition("-")[0]
    return short if len(set(short.values())) == len(short) else long


def partitions_text(member: dict[str, Any]) -> str:
    by_topic: dict[str, list[int]] = {}
    for partition in member["partitions"]:
        by_topic.setdefault(partition["topic"], []).append(partition["partition"])
    texts = [f"{topic} {number_ranges(numbers)}" for topic, numbers in by_topic.items()]
    return "; ".join(texts) or "none"
