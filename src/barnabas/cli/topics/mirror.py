"""`barnabas topics mirror`: copy topics to another cluster, once or continuously."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.batch.compression import Compression
from barnabas.cli.connection import connect_with_file
from barnabas.cli.options import (
    dry_run_option,
    master_option,
    output_option,
    timeout_option,
    verify_option,
)
from barnabas.cli.spark.session import spark_session, translate_errors
from barnabas.cli.terminal.output import OutputFormat, format_table, plural, print_note, show
from barnabas.cli.terminal.signals import SignalRecorder
from barnabas.cli.topics.copy_options import compression_option
from barnabas.cli.topics.deletion import report_deletion
from barnabas.cli.topics.mirror_rounds import FailedTopics, Round, for_each_topic
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.errors import ApiError, ConfigError
from barnabas.jobs.mirror_checkpoints import CheckpointStore
from barnabas.retry import Backoff

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.jobs.mirror import Mirror, MirroredTopic

INTERVAL_S = 1.0
RETRY_S = (1.0, 30.0)

source_config_option = click.option(
    "--from-config",
    "source_config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Kafka client settings for TLS and logins at the source; default: the environment.",
)
target_config_option = click.option(
    "--to-config",
    "target_config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Kafka client settings for TLS and logins at the target; default: the environment.",
)


@click.command("mirror")
@click.argument("pattern")
@click.option("--from", "source", required=True, metavar="SERVERS", help="Cluster to read from.")
@click.option("--to", "target", required=True, metavar="SERVERS", help="Cluster to write to.")
@source_config_option
@target_config_option
@click.option("--prefix", default="", help="Text before the name of every mirrored topic.")
@click.option("--continuous", is_flag=True, help="Follow the topics until interrupted.")
@compression_option
@verify_option
@dry_run_option
@master_option
@timeout_option
@output_option
def mirror_topics(
    pattern: str,
    source: str,
    target: str,
    source_config: Path | None,
    target_config: Path | None,
    prefix: str,
    continuous: bool,
    compression: Compression,
    verify: bool,
    dry_run: bool,
    master: str | None,
    timeout_s: float,
    output: OutputFormat,
) -> None:
    """Copy the topics that match PATTERN, a regular expression for the whole name, to another cluster.

    Partitions and settings follow those of the source. The next run copies only new records. A run that was killed can
    be repeated: no record is lost or copied twice.

    \b
    barnabas topics mirror 'orders.*' --from one:9092 --to two:9092
    barnabas topics mirror '.*' --from one:9092 --to two:9092 --continuous
    """
    from barnabas.jobs.mirror import Mirror, plan_topic

    with (
        connect_with_file(source, source_config, timeout_s=timeout_s) as from_cluster,
        connect_with_file(target, target_config, timeout_s=timeout_s) as to_cluster,
    ):
        source_id, target_id = cluster_ids(from_cluster, to_cluster, prefix)
        mirror = Mirror(
            source=from_cluster,
            target=to_cluster,
            checkpoints=CheckpointStore(to_cluster, source_id),
            prefix=prefix,
            is_in_one_cluster=source_id == target_id,
            compression=compression,
        )
        topics = find_topics(mirror, pattern)
        if not topics and not continuous:
            hint = "`barnabas topics list` shows all topics"
            raise ConfigError("PATTERN", f"no topic of {source} matches {pattern!r}; {hint}")
        if dry_run:
            planned = for_each_topic(topics, lambda topic: plan_topic(mirror, topic))
            if planned.done:
                document = {"topics": [each._asdict() for each in planned.done], "dry_run": True}
                show(output, document, plan_text)
            planned.raise_failure()
            return
        clusters = (from_cluster, to_cluster)
        app_name = f"mirror {pattern}"
        session = spark_session(master, *clusters, app_name=app_name, short=not continuous)
        with session as spark, translate_errors([]):
            if continuous:
                follow(spark, mirror, pattern, verify=verify, output=output)
                return
            copied = for_each_topic(
                topics, lambda topic: copy_to_end(spark, mirror, topic, verify=verify)
            )
            if copied.done:
                show(output, document_of(copied.done), mirror_text)
            copied.raise_failure()


def cluster_ids(source: Cluster, target: Cluster, prefix: str) -> tuple[str, str]:
    """Return the ids of both clusters. Raises ConfigError if they are the same and the names would be too."""
    source_id, target_id = (Admin(each).describe_cluster().cluster_id for each in (source, target))
    if source_id == target_id and not prefix:
        raise ConfigError("--to", "is the same cluster as --from; name another, or set --prefix")
    return source_id, target_id


def find_topics(mirror: Mirror, pattern: str) -> list[str]:
    from barnabas.jobs.mirror import matching_topics

    found = [each.name for each in Admin(mirror.source).list_topics() if not each.is_internal]
    if mirror.is_in_one_cluster:
        # Otherwise each run would mirror the mirrors of the last one.
        found = [name for name in found if not name.startswith(mirror.prefix)]
    return matching_topics(found, pattern)


def copy_to_end(spark: SparkSession, mirror: Mirror, topic: str, *, verify: bool) -> MirroredTopic:
    """Copy a topic up to its end at the first look."""
    result = mirror_existing(spark, mirror, topic, verify=verify)
    left = result.lag
    while left > 0:
        more = mirror_existing(spark, mirror, topic, verify=verify)
        copied = more.records + more.lost
        left = left - copied if copied else 0
        result = more._replace(records=result.records + more.records, lost=result.lost + more.lost)
    return result


def mirror_existing(
    spark: SparkSession, mirror: Mirror, topic: str, *, verify: bool
) -> MirroredTopic:
    """Copy the next records of a topic. Raises ApiError if it is deleted meanwhile."""
    from barnabas.jobs.mirror import mirror_topic

    found = mirror.source.topic(topic)
    with report_deletion(mirror.source, topic, found.id), translate_errors([]):
        return mirror_topic(spark, mirror, topic, verify=verify)


def follow(
    spark: SparkSession, mirror: Mirror, pattern: str, *, verify: bool, output: OutputFormat
) -> None:
    """Copy new records until a signal arrives. Failures of the network and of tasks are retried."""
    signals = SignalRecorder()
    backoff = Backoff(*RETRY_S, random=mirror.source.random)
    failed = FailedTopics()
    while not signals.wait(INTERVAL_S):
        copied = copy_round(spark, mirror, pattern, failed, verify=verify)
        for note in failed.update(copied):
            print_note(note)
        changed = [each for each in copied.done if each.records or each.lost]
        if changed:
            show(output, document_of(changed), mirror_text)
        if copied.error is None:
            backoff.reset()
        elif isinstance(copied.error, ApiError) and copied.error.code.retriable:
            print_note(f"{copied.error}; retrying")
            signals.wait(backoff.next_s())
        else:
            raise copied.error
    signals.raise_if_received()


def copy_round(
    spark: SparkSession, mirror: Mirror, pattern: str, failed: FailedTopics, *, verify: bool
) -> Round[MirroredTopic]:
    """Copy the next records of all topics that are not paused."""
    try:
        topics = failed.without_paused(find_topics(mirror, pattern))
    except ApiError as error:
        return Round([], {}, error)
    return for_each_topic(
        topics, lambda topic: mirror_existing(spark, mirror, topic, verify=verify)
    )


def document_of(topics: list[MirroredTopic]) -> dict[str, Any]:
    return {"topics": [each._asdict() for each in topics], "dry_run": False}


def mirror_text(document: dict[str, Any]) -> str:
    topics = document["topics"]
    records = sum(each["records"] for each in topics)
    names = ["topic", "target", "partitions", "records", "lag", "lost"]
    table = format_table(names, [[each[name] for name in names] for each in topics])
    return f"copied {plural(records, 'record')} of {plural(len(topics), 'topic')}\n{table}"


def plan_text(document: dict[str, Any]) -> str:
    topics = document["topics"]
    offsets = sum(each["offsets"] for each in topics)
    names = ["topic", "target", "partitions", "offsets", "lost"]
    rows = [[*(each[name] for name in names), changes_text(each)] for each in topics]
    table = format_table([*names, "target changes"], rows)
    return f"would copy {plural(offsets, 'offset')} of {plural(len(topics), 'topic')}\n{table}"


def changes_text(plan: dict[str, Any]) -> str:
    """The changes of the target topic, apart from its records."""
    if not plan["exists"]:
        return "new topic"
    changes = []
    if plan["new_partitions"]:
        changes.append(f"{plural(plan['new_partitions'], 'new partition')}")
    if plan["settings"]:
        changes.append("settings " + ", ".join(plan["settings"]))
    return "; ".join(changes) or "none"
