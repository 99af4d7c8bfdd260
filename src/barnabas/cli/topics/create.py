"""`barnabas topics create`."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import dry_run_option
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.cli.terminal.output import OutputFormat, plural, show
from barnabas.cli.topics.describe import topic_id_text
from barnabas.cli.topics.lookup import explain_rejected_name
from barnabas.client.admin import Admin, NewTopic, TopicOutcome, topics_being_deleted
from barnabas.client.cluster import Cluster
from barnabas.errors import ConfigError, ErrorCode


@click.command("create")
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="Number of partitions; default: the cluster's default.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1),
    help="Replicas of each partition; default: the cluster's default.",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Setting of the topic; repeatable.",
)
@click.option(
    "--replica-assignment",
    metavar="0:1:2,1:2:0",
    help="Brokers of each partition, the preferred leader first; not with --partitions or "
    "--replication-factor.",
)
@click.option("--if-not-exists", is_flag=True, help="Succeed without a change if the topic exists.")
@dry_run_option
@cluster_command
def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    replica_assignment: str | None,
    if_not_exists: bool,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """Create topic NAME.

    Example: barnabas topics create orders --partitions 6 --replication-factor 3 --config retention.ms=3600000
    """
    if replica_assignment and (partitions or replication_factor):
        raise ConfigError(
            "--replica-assignment", "cannot be combined with --partitions and --replication-factor"
        )
    topic = NewTopic(
        name=name,
        partitions=partitions or -1,
        replication_factor=replication_factor or -1,
        configs=parse_topic_configs(configs),
        assignment=parse_assignment(replica_assignment) if replica_assignment else (),
    )
    (outcome,) = Admin(cluster).create_topics([topic], validate_only=dry_run)
    if outcome.error is not None and topics_being_deleted([outcome]):
        hint = "start the brokers that have replicas of it and are not alive; then create the topic again"
        raise ErrorWithHint(outcome.error, outcome.error.message, hint)
    existed = outcome.error is not None and outcome.error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    if outcome.error is not None and not (existed and if_not_exists):
        raise explain_rejected_name(outcome.error, name)
    show(output, created_document(outcome, existed=existed, dry_run=dry_run), created_text)


def created_document(outcome: TopicOutcome, *, existed: bool, dry_run: bool) -> dict[str, Any]:
    return {
        "topic": outcome.name,
        "created": not existed and not dry_run,
        "existed": existed,
        "dry_run": dry_run,
        "topic_id": topic_id_text(outcome.topic_id),
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
        factor = document["replication_factor"]
        shape = f": {plural(document['partitions'], 'partition')}, replication factor {factor}"
    return f"{verb} topic {document['topic']}{shape}"


def parse_assignment(
    text: str, option: str = "--replica-assignment"
) -> tuple[tuple[int, ...], ...]:
    """Parse `0:1:2,1:2:0`: the first partition on brokers 0, 1 and 2, the second on 1, 2 and 0."""
    try:
        return tuple(
            tuple(int(broker) for broker in partition.split(":")) for partition in text.split(",")
        )
    except ValueError:
        why = f"{text!r} is not like 0:1:2,1:2:0, the brokers of each partition"
        raise ConfigError(option, why) from None


def parse_topic_configs(pairs: tuple[str, ...]) -> dict[str, str]:
    configs = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError("--config", f"{pair!r} is not KEY=VALUE")
        configs[key.strip()] = value.strip()
    return configs
