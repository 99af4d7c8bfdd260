"""`barnabas pipeline replay-dead-letters`: send dead letters back to the topics that they came from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import click

from barnabas.cli.connection import connect, connection_options
from barnabas.cli.options import dry_run_option, output_option, timeout_option
from barnabas.cli.terminal.output import OutputFormat, format_table, plural, show
from barnabas.cli.topics.lookup import complete_topics, find_partitions
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import ConsumedRecord, Consumer, FromOffset
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.offsets import earliest_offsets, latest_offsets
from barnabas.client.producer import Producer
from barnabas.errors import ConfigError
from barnabas.model import TopicPartition
from barnabas.spark.dead_letters import (
    SOURCE_HEADERS,
    DeadLetter,
    NotADeadLetter,
    parse_dead_letter,
)

COMMIT_INTERVAL = 10_000
"""Records after which the progress is committed. If the command is killed, these are sent again."""

Offsets = dict[TopicPartition, int]


@click.command("replay-dead-letters")
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--to", "target", metavar="TOPIC", help="Send to this topic, not to the original ones."
)
@click.option("--reason", metavar="REGEX", help="Only dead letters whose reason matches.")
@click.option(
    "--from-beginning", is_flag=True, help="Also those that an earlier replay sent or left out."
)
@dry_run_option
@connection_options
@timeout_option
@output_option
def replay_dead_letters(
    topic: str,
    target: str | None,
    reason: str | None,
    from_beginning: bool,
    dry_run: bool,
    bootstrap_servers: str,
    timeout_s: float,
    output: OutputFormat,
) -> None:
    """Send the dead letters in TOPIC back to the topics that they came from.

    Records get their original key, value, headers and timestamp. The next replay continues after the last one; the
    group replay-TOPIC has its offsets. After a crash, up to 10,000 records may be sent twice.

    \b
    barnabas pipeline replay-dead-letters orders-dead --dry-run
    barnabas pipeline replay-dead-letters orders-dead --reason 'amount is positive'
    """
    pattern = parse_reason(reason)
    if target == topic:
        raise ConfigError("--to", "is the topic of the dead letters; name another")
    with connect(bootstrap_servers, timeout_s=timeout_s) as cluster:
        partitions = find_partitions(cluster, topic, [])
        group = f"replay-{topic}"
        starts = find_starts(cluster, group, partitions, from_beginning=from_beginning)
        ends = latest_offsets(cluster, partitions, committed=True)
        sent: Counter[tuple[str, str]] = Counter()
        left_out = 0
        with Producer(cluster, acks=-1) as producer:
            for number, record in enumerate(read(cluster, starts, ends), 1):
                letter = original(record, target)
                starts[TopicPartition(topic, record.partition)] = record.offset + 1
                if pattern is not None and not pattern.search(letter.reason):
                    left_out += 1
                    continue
                if letter.topic == topic:
                    place = f"{topic}-{record.partition}, offset {record.offset}"
                    hint = "--to NAME sends all letters to another topic"
                    raise NotADeadLetter(f"{place}: came from this topic itself; {hint}")
                sent[letter.topic, letter.reason] += 1
                if not dry_run:
                    producer.send(
                        letter.topic,
                        letter.value,
                        key=letter.key,
                        headers=letter.headers,
                        timestamp=letter.timestamp,
                    )
                if number % COMMIT_INTERVAL == 0 and not dry_run:
                    producer.flush()
                    GroupAdmin(cluster).set_offsets(group, starts)
        if not dry_run:
            GroupAdmin(cluster).set_offsets(group, ends)
    document = {
        "topic": topic,
        "dry_run": dry_run,
        "left_out": left_out,
        "replayed": [
            {"topic": name, "reason": why, "records": count}
            for (name, why), count in sorted(sent.items())
        ],
    }
    show(output, document, replay_text)


def parse_reason(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise ConfigError("--reason", f"{text!r} is not a regular expression: {error}") from None


def find_starts(
    cluster: Cluster, group: str, partitions: list[TopicPartition], *, from_beginning: bool
) -> Offsets:
    starts = earliest_offsets(cluster, partitions)
    if from_beginning:
        return dict(starts)
    committed = GroupAdmin(cluster).committed_offsets(group, partitions)
    return {
        each: max(start, committed[each].offset) if each in committed else start
        for each, start in starts.items()
    }


def read(
    cluster: Cluster, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> Iterator[ConsumedRecord]:
    """Yield the committed records before `ends`. A replayed record may be rejected again, and come after them."""
    unread = {each: FromOffset(start) for each, start in starts.items() if start < ends[each]}
    if not unread:
        return
    consumer = Consumer(cluster, unread, is_committed_only=True)
    while any(consumer.positions[each] < ends[each] for each in unread):
        for record in consumer.poll(1.0):
            if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                yield record


def original(record: ConsumedRecord, target: str | None) -> DeadLetter:
    """Return the original record. With `target`, a record without the headers of a dead letter is accepted."""
    if target is None:
        return parse_dead_letter(record)
    named = (*record.headers, (SOURCE_HEADERS["topic"], target.encode()))
    return parse_dead_letter(record._replace(headers=named))


def replay_text(document: dict[str, Any]) -> str:
    rows = document["replayed"]
    count = sum(row["records"] for row in rows)
    verb = "would replay" if document["dry_run"] else "replayed"
    left_out = document["left_out"]
    rest = f"; {plural(left_out, 'record')} with other reasons left out" if left_out else ""
    line = f"{verb} {plural(count, 'record')} of topic {document['topic']}{rest}"
    if not rows:
        return line
    table = [[row["topic"], row["records"], row["reason"]] for row in rows]
    return f"{line}\n{format_table(['topic', 'records', 'reason'], table)}"
