"""`barnabas topics copy`: copy the records of a topic to another topic of the same cluster, without Spark.

Keys, values, headers and timestamps stay the same. If both topics have the same number of partitions, each record stays
in its partition. Otherwise the target's partition is chosen by key, so records with the same key keep their order.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct, field

from barnabas.batch.compression import Compression
from barnabas.cli.cluster_command import cluster_command, servers_hint
from barnabas.cli.options import dry_run_option
from barnabas.cli.records.start_position import parse_start
from barnabas.cli.terminal.failure import CommandError
from barnabas.cli.terminal.output import OutputFormat, format_table, plural, print_note, show
from barnabas.cli.terminal.signals import Terminated, raise_on_signals
from barnabas.cli.topics.lookup import complete_topics, explain_rejected_name, find_topic
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.blocking import now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Consumer, FromOffset, Start, resolve_starts
from barnabas.client.producer import Producer
from barnabas.errors import ApiError, ConfigError
from barnabas.model import TopicPartition
from barnabas.progress_line import ProgressLine

if TYPE_CHECKING:
    from barnabas.jobs.topic_state import TopicState

POLL_S = 1.0
TIMESTAMP_TYPE = "message.timestamp.type"


class CopyRange(Struct):
    """The offsets of one source partition to copy: from `start` up to, not including, `end`."""

    start: int
    end: int
    records: int = 0
    """Copied records. Offsets without a record are not counted."""


class CopyPlan(Struct, kw_only=True):
    """A copy of `source` to `target`. `ranges` has the source partitions; `keep_partitions`: the numbers are equal."""

    source: str
    target: str
    target_partitions: int
    existed: bool
    keep_partitions: bool
    ranges: dict[TopicPartition, CopyRange] = field(default_factory=dict)

    @property
    def offsets(self) -> int:
        return sum(each.end - each.start for each in self.ranges.values())

    @property
    def records(self) -> int:
        return sum(each.records for each in self.ranges.values())


@click.command("copy")
@click.argument("source", shell_complete=complete_topics)
@click.argument("target", shell_complete=complete_topics)
@click.option(
    "--from",
    "start",
    default="beginning",
    show_default=True,
    metavar="WHERE",
    help="Where to start: beginning, 1234 (an offset), -10 (from the end), @-1h, @2024-05-01T08:00.",
)
@click.option("--append", is_flag=True, help="Write to TARGET although it has records.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice([codec.name.lower() for codec in Compression]),
    default="none",
    show_default=True,
    help="Compression of the copied records.",
)
@dry_run_option
@cluster_command
def copy_topic(
    cluster: Cluster,
    source: str,
    target: str,
    start: str,
    append: bool,
    compression: str,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """Copy the records of topic SOURCE to topic TARGET, with keys, headers and timestamps.

    TARGET is created like SOURCE if it does not exist. Records that are written to SOURCE after the start are not
    copied. `topics resize` continues after a failure and verifies the copy; it needs Spark.

    Example: barnabas topics copy orders orders-backup --from @-1d
    """
    from barnabas.jobs.topic_state import find_state, look_up_state

    first = parse_start(start, now_ms(), "--from")
    if source == target:
        raise ConfigError("TARGET", f"{target!r} is the source; choose another topic")
    find_topic(cluster, source)
    found = look_up_state(cluster, source)
    existing = find_state(cluster, target)
    if existing is not None:
        check_copy_target(cluster, existing, append=append)
    plan = plan_copy(found, target, existing, start_offsets(cluster, found, first))
    if existing is None:
        create_like(cluster, found, target, dry_run=dry_run)
    if not dry_run:
        copy_records(cluster, plan, Compression[compression.upper()], servers_hint())
    show(output, copy_document(plan, dry_run=dry_run), copy_text)


def check_copy_target(cluster: Cluster, target: TopicState, *, append: bool) -> None:
    """Raise CommandError if the target would change timestamps, or has records and `append` is false."""
    entries = Admin(cluster).describe_topic_configs([target.name])[target.name]
    if any(each.name == TIMESTAMP_TYPE and each.value == "LogAppendTime" for each in entries):
        why = f"topic {target.name} has {TIMESTAMP_TYPE}=LogAppendTime, which replaces timestamps"
        raise CommandError(why, "choose another topic, or set CreateTime with `configs alter`")
    if not target.is_empty and not append:
        why = f"topic {target.name} has records already"
        raise CommandError(why, "to write after them, add --append; or choose another topic")


def start_offsets(cluster: Cluster, source: TopicState, first: Start) -> dict[int, int]:
    partitions = [TopicPartition(source.name, number) for number in range(source.partition_count)]
    starts = resolve_starts(cluster, dict.fromkeys(partitions, first))
    return {each.partition: offset for each, offset in starts.items()}


def plan_copy(
    source: TopicState, target: str, existing: TopicState | None, starts: Mapping[int, int]
) -> CopyPlan:
    """Return the plan. Start offsets outside of a partition are moved to its beginning or end."""
    count = source.partition_count if existing is None else existing.partition_count
    return CopyPlan(
        source=source.name,
        target=target,
        target_partitions=count,
        existed=existing is not None,
        keep_partitions=count == source.partition_count,
        ranges={
            TopicPartition(source.name, number): CopyRange(
                min(max(starts[number], span.earliest), span.latest), span.latest
            )
            for number, span in enumerate(source.spans)
        },
    )


def create_like(cluster: Cluster, source: TopicState, name: str, *, dry_run: bool) -> None:
    """Create a topic with the partitions and settings of the source. Its records keep their timestamps."""
    topic = NewTopic(
        name=name,
        partitions=source.partition_count,
        replication_factor=source.replication_factor,
        configs={**source.settings, TIMESTAMP_TYPE: "CreateTime"},
    )
    (outcome,) = Admin(cluster).create_topics([topic], validate_only=dry_run)
    if outcome.error is not None:
        raise explain_rejected_name(outcome.error, name)


def copy_records(cluster: Cluster, plan: CopyPlan, compression: Compression, servers: str) -> None:
    """Copy the records and count them in the plan. Before an error is raised, prints how far the copy got."""
    raise_on_signals()
    line = ProgressLine(sys.stderr) if sys.stderr.isatty() else None
    # The producer has its own connections: a Fetch that waits for records would delay its responses.
    with cluster.with_new_connections(timeout_s=cluster.timeout_s) as writing:
        producer = Producer(writing, compression=compression)
        try:
            run_copy(cluster, producer, plan, line)
        except BaseException as error:
            if line is not None:
                line.erase()
            if isinstance(error, ApiError | KeyboardInterrupt | Terminated):
                report_incomplete(plan, servers)
            raise
    if line is not None:
        line.erase()


def run_copy(
    cluster: Cluster, producer: Producer, plan: CopyPlan, line: ProgressLine | None
) -> None:
    left = {each: span for each, span in plan.ranges.items() if span.start < span.end}
    starts: dict[TopicPartition, Start] = {
        each: FromOffset(span.start) for each, span in left.items()
    }
    # With `reset`, the copy continues with the oldest record if retention deleted the next one.
    consumer = Consumer(cluster, starts, reset=Beginning())
    while left:
        counts = dict.fromkeys(left, 0)
        for record in consumer.poll(POLL_S):
            partition = TopicPartition(record.topic, record.partition)
            if record.offset < plan.ranges[partition].end:
                producer.send(
                    plan.target,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=record.partition if plan.keep_partitions else None,
                    timestamp=record.timestamp,
                )
                counts[partition] += 1
        producer.flush()
        for partition, count in counts.items():
            plan.ranges[partition].records += count
        done = [each for each in left if consumer.positions[each] >= left[each].end]
        for partition in done:
            del left[partition]
        if done:
            consumer.assign({each: consumer.positions[each] for each in left})
        if line is not None:
            behind = sum(span.end - consumer.positions[each] for each, span in left.items())
            line.show(copy_progress_text(plan, plan.offsets - behind))


def copy_progress_text(plan: CopyPlan, offsets_done: int) -> str:
    share = offsets_done / plan.offsets if plan.offsets else 1.0
    return f"copying {plan.source} to {plan.target}: {share:4.0%}  {plural(plan.records, 'record')}"


def report_incomplete(plan: CopyPlan, servers: str) -> None:
    lines = [
        f"{plural(plan.records, 'record')} of {plural(plan.offsets, 'offset')} copied; "
        f"topic {plan.target} is incomplete, and the last records may be there twice after a rerun"
    ]
    if not plan.existed:
        again = f"`barnabas topics delete {plan.target}{servers}`"
        lines.append(f"to start again, delete it with {again} first")
    print_note(*lines)


def copy_document(plan: CopyPlan, *, dry_run: bool) -> dict[str, Any]:
    return {
        "source": plan.source,
        "target": plan.target,
        "dry_run": dry_run,
        "created": not plan.existed and not dry_run,
        "existed": plan.existed,
        "target_partitions": plan.target_partitions,
        "partitions_kept": plan.keep_partitions,
        "offsets": plan.offsets,
        "records": None if dry_run else plan.records,
        "partitions": [
            {
                "partition": partition.partition,
                "from": span.start,
                "to": span.end,
                "records": None if dry_run else span.records,
            }
            for partition, span in sorted(plan.ranges.items())
        ],
    }


def copy_text(document: dict[str, Any]) -> str:
    source, target = document["source"], document["target"]
    partitions = plural(document["target_partitions"], "partition")
    where = "existing topic" if document["existed"] else "new topic"
    if document["dry_run"]:
        line = f"would copy {plural(document['offsets'], 'offset')} of topic {source} to the {where} {target}"
    else:
        line = f"copied {plural(document['records'], 'record')} of topic {source} to the {where} {target}"
    rule = "each record in its partition" if document["partitions_kept"] else "by key"
    lines = [f"{line}: {partitions}, {rule}"]
    heads = ["partition", "from", "to", *([] if document["dry_run"] else ["records"])]
    rows = [[row[head] for head in heads] for row in document["partitions"]]
    return "\n".join([*lines, format_table(heads, rows)])
