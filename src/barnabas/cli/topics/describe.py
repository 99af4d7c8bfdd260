"""`barnabas topics`: create, list, describe; and the commands that have files of their own: alter, delete, history."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

import click

from barnabas.cli.options import (
    bootstrap_option,
    complete_topics,
    dry_run_option,
    output_option,
    servers_typed,
    show_or_watch,
    timeout_option,
    watch_option,
)
from barnabas.cli.terminal.failure import unknown_topic
from barnabas.cli.terminal.output import Output, plural, show, table, wrapped
from barnabas.cli.topics.alter import alter
from barnabas.cli.topics.delete import delete
from barnabas.cli.topics.health import listed, next_step, trouble
from barnabas.cli.topics.replica_assignment import parse_assignment
from barnabas.client.admin import Admin, ConfigEntry, NewTopic, TopicOutcome
from barnabas.client.cluster import Cluster
from barnabas.client.view import PartitionView, TopicView
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.metadata.znodes import encode_uuid
from barnabas.model import ZERO_ID


class TopicsGroup(click.Group):
    """The history is read with a consumer, which the others do not need to load."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), "history"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != "history":
            return super().get_command(ctx, cmd_name)
        from barnabas.cli.history.history import history

        return history


@click.group(cls=TopicsGroup)
def topics() -> None:
    """Create, list, describe, alter and delete topics; and tell what happened to them."""


# ---- create ---------------------------------------------------------------------------------------------------


@topics.command()
@click.argument("name")
@click.option(
    "--partitions", type=click.IntRange(min=1), help="How many; the cluster's default if not given."
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1),
    help="Copies of each; the cluster's default if not given.",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the topic; repeatable.",
)
@click.option(
    "--replica-assignment",
    metavar="0:1:2,1:2:0",
    help="The brokers of each partition, the preferred leader first, instead of numbers.",
)
@click.option("--if-not-exists", is_flag=True, help="An existing topic is fine, as it is.")
@dry_run_option
@bootstrap_option
@timeout_option
@output_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    replica_assignment: str | None,
    if_not_exists: bool,
    dry_run: bool,
    bootstrap_servers: str,
    timeout_s: float,
    output: Output,
) -> None:
    """Create the topic NAME.

    Example: barnabas topics create orders --partitions 6 --replication-factor 3 --config retention.ms=3600000
    """
    if replica_assignment and (partitions or replication_factor):
        raise ConfigError("--replica-assignment", "excludes --partitions and --replication-factor")
    topic = NewTopic(
        name=name,
        partitions=partitions or -1,
        replication_factor=replication_factor or -1,
        configs=parse_configs(configs),
        assignment=parse_assignment(replica_assignment) if replica_assignment else (),
    )
    with Cluster(bootstrap_servers, timeout_s=timeout_s) as cluster:
        (outcome,) = Admin(cluster).create_topics([topic], validate_only=dry_run)
    existed = outcome.error is not None and outcome.error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    if outcome.error is not None and not (existed and if_not_exists):
        raise outcome.error
    document = created_document(outcome, existed=existed, dry_run=dry_run)
    show(output, document, created_text)


def shown_id(topic_id: UUID) -> str | None:
    """As Kafka's tools show it; clusters of before 2.8 have none."""
    return None if topic_id == ZERO_ID else encode_uuid(topic_id)


def created_document(outcome: TopicOutcome, *, existed: bool, dry_run: bool) -> dict[str, Any]:
    return {
        "topic": outcome.name,
        "created": not existed and not dry_run,
        "existed": existed,
        "dry_run": dry_run,
        "topic_id": shown_id(outcome.topic_id),
        "partitions": outcome.partitions if outcome.partitions >= 0 else None,
        "replication_factor": outcome.replication_factor
        if outcome.replication_factor >= 0
        else None,
    }


def created_text(document: dict[str, Any]) -> str:
    if document["existed"]:
        return f"topic {document['topic']} exists already"
    verb = "would create" if document["dry_run"] else "created"
    shape = ""
    if document["partitions"] is not None:
        copies = document["replication_factor"]
        shape = f": {plural(document['partitions'], 'partition')}, replication factor {copies}"
    return f"{verb} topic {document['topic']}{shape}"


def parse_configs(pairs: tuple[str, ...]) -> dict[str, str]:
    configs = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError("--config", f"{pair!r} is not KEY=VALUE")
        configs[key.strip()] = value.strip()
    return configs


# ---- list -----------------------------------------------------------------------------------------------------


@topics.command("list")
@click.option(
    "--internal/--no-internal", default=False, help="Whether to list the cluster's own topics."
)
@watch_option
@bootstrap_option
@timeout_option
@output_option
def list_topics(
    internal: bool, watch: bool, bootstrap_servers: str, timeout_s: float, output: Output
) -> None:
    """List all topics and whether they are whole."""
    with Cluster(bootstrap_servers, timeout_s=timeout_s) as cluster:
        admin = Admin(cluster)
        show_or_watch(
            watch,
            output,
            lambda: {
                "topics": [
                    summary(topic)
                    for topic in admin.list_topics()
                    if internal or not topic.is_internal
                ]
            },
            list_text,
        )


def summary(topic: TopicView) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "under_replicated": sum(partition.is_under_replicated for partition in topic.partitions),
        "offline": sum(partition.is_offline for partition in topic.partitions),
        "internal": topic.is_internal,
    }


def list_text(document: dict[str, Any]) -> str:
    if not document["topics"]:
        return "no topics yet; create one with `barnabas topics create NAME`"
    heads = ["topic", "partitions", "replicas", "state"]
    rows = [
        [topic["topic"], topic["partitions"], topic["replication_factor"], state(topic)]
        for topic in document["topics"]
    ]
    return table(heads, rows)


def state(topic: dict[str, Any]) -> str:
    troubles = [f"{topic[key]} {word}" for key, word in TROUBLES.items() if topic[key]]
    return ", ".join(troubles) or "ok"


TROUBLES = {"offline": "offline", "under_replicated": "under-replicated"}


# ---- describe -------------------------------------------------------------------------------------------------


@topics.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_topics)
@click.option(
    "--all-configs",
    is_flag=True,
    help="Show every setting, not only those that differ from the default.",
)
@watch_option
@bootstrap_option
@timeout_option
@output_option
def describe(
    names: tuple[str, ...],
    all_configs: bool,
    watch: bool,
    bootstrap_servers: str,
    timeout_s: float,
    output: Output,
) -> None:
    """Show partitions, leaders, replicas and settings of the topics NAME, or of all topics."""

    def load() -> dict[str, Any]:
        views = described(cluster, admin, names) if names else admin.list_topics()
        configs = admin.describe_topic_configs([view.name for view in views]) if views else {}
        return {
            "topics": [
                described_document(
                    view,
                    configs.get(view.name, []),
                    all_configs,
                    cluster.view.brokers,
                    servers_typed(bootstrap_servers),
                )
                for view in views
            ]
        }

    with Cluster(bootstrap_servers, timeout_s=timeout_s) as cluster:
        admin = Admin(cluster)
        show_or_watch(watch, output, load, describe_text)


def described(cluster: Cluster, admin: Admin, names: tuple[str, ...]) -> list[TopicView]:
    for name in names:
        try:
            cluster.topic(name)
        except ApiError as error:
            raise unknown_topic(cluster, name, error) from None
    return admin.describe_topics(names)


def described_document(
    view: TopicView,
    configs: list[ConfigEntry],
    all_configs: bool,
    alive: Collection[int],
    servers: str = "",
) -> dict[str, Any]:
    in_sync_min = min_insync_replicas(configs)
    partitions = [partition_document(each, alive, in_sync_min) for each in view.partitions]
    is_troubled = any(partition["trouble"] for partition in partitions)
    return {
        **summary(view),
        "topic_id": shown_id(view.id),
        "configs": {
            config.name: config.value
            for config in sorted(configs, key=lambda config: config.name)
            if all_configs or not config.is_default
        },
        "partition_list": partitions,
        "next_step": next_step(view.name, view.partitions, alive, servers) if is_troubled else None,
    }


def min_insync_replicas(configs: list[ConfigEntry]) -> int:
    values = [config.value for config in configs if config.name == "min.insync.replicas"]
    return int(values[0]) if values and values[0] else 1


def partition_document(
    partition: PartitionView, alive: Collection[int], in_sync_min: int
) -> dict[str, Any]:
    return {
        "partition": partition.partition,
        "leader": None if partition.is_offline else partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "offline_replicas": list(partition.offline_replicas),
        "trouble": trouble(partition, alive, min_insync_replicas=in_sync_min),
    }


def describe_text(document: dict[str, Any]) -> str:
    return "\n\n".join(topic_text(topic) for topic in document["topics"]) or list_text(document)


def topic_text(topic: dict[str, Any]) -> str:
    lines = [
        f"topic {topic['topic']}: {plural(topic['partitions'], 'partition')}, "
        f"replication factor {topic['replication_factor']}, {state(topic)}"
    ]
    if topic["topic_id"]:
        lines.append(f"  id {topic['topic_id']}")
    lines += [f"  {name} = {value}" for name, value in topic["configs"].items()]
    rows = [
        [
            partition["partition"],
            "none" if partition["leader"] is None else partition["leader"],
            ",".join(map(str, partition["replicas"])),
            ",".join(map(str, partition["isr"])),
            missing(partition),
        ]
        for partition in topic["partition_list"]
    ]
    lines.append(table(["partition", "leader", "replicas", "isr", "missing"], rows))
    return "\n".join([*lines, *trouble_lines(topic)])


def trouble_lines(topic: dict[str, Any]) -> list[str]:
    """Partitions with the same trouble share a line."""
    troubled: dict[str, list[int]] = {}
    for partition in topic["partition_list"]:
        if partition["trouble"]:
            troubled.setdefault(partition["trouble"], []).append(partition["partition"])
    lines = [
        f"  partition{'s' if len(partitions) > 1 else ''} {listed(partitions)}: {why}"
        for why, partitions in troubled.items()
    ]
    lines += [f"  next: {topic['next_step']}"] if lines else []
    return [wrapped(line, indent=4) for line in lines]


def missing(partition: dict[str, Any]) -> str:
    return ",".join(
        str(broker) for broker in partition["replicas"] if broker not in partition["isr"]
    )


topics.add_command(alter)
topics.add_command(delete)
