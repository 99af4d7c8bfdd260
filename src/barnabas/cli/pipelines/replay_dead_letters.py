"""`barnabas pipeline replay-dead-letters`: send dead letters back to the topics that they came from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import click

from barnabas.cli.connection import connect, connection_options
from barnabas.cli.options import dry_run_option, output_option, timeout_option
from barnabas.cli.terminal.output import OutputFormat, format_table, plural, show
from barnabas.cli.topics.lookup import complete_topics, find_partitions, find_topic
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
PROGRESS_RETENTION_MS = 100 * 365 * 86_400_000
"""If the progress expired after `offsets.retention.minutes`, the next replay would send all dead letters again."""

Offsets = dict[TopicPartition, int]


class Replay(NamedTuple):
    """The letters to replay: those from `starts` to `ends` whose reason matches `pattern`."""

    topic: str
    target: str | None
    pattern: re.Pattern[str] | None
    starts: Offsets
    ends: Mapping[TopicPartition, int]


class LetterCounts(NamedTuple):
    """Letters by original topic and reason, and the number of those with other reasons."""

    sent: Counter[tuple[str, str]]
    left_out: int


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
        plan = Replay(topic, target, pattern, starts, ends)
        # Check all letters first: a replay that stops halfway would send letters again.
        counts = count_letters(cluster, plan)
        for name in sorted({name for name, _ in counts.sent}):
            find_topic(cluster, name)
        if not dry_run:
            send_letters(cluster, plan, group)
    document = {
        "topic": topic,
        "dry_run": dry_run,
        "left_out": counts.left_out,
        "replayed": [
            {"topic": name, "reason": why, "records": count}
            for (name, why), count in sorted(counts.sent.items())
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


def count_letters(cluster: Cluster, replay: Replay) -> LetterCounts:
    """Count the letters. Raises NotADeadLetter for the first record that cannot be replayed."""
    sent: Counter[tuple[str, str]] = Counter()
    left_out = 0
    for _, letter in read_letters(cluster, replay):
        if letter is None:
            left_out += 1
        else:
            sent[letter.topic, letter.reason] += 1
    return LetterCounts(sent, left_out)


def send_letters(cluster: Cluster, replay: Replay, group: str) -> None:
    """Send the letters, and commit the progress to `group`."""
    done = dict(replay.starts)
    with Producer(cluster, acks=-1) as producer:
        for number, (record, letter) in enumerate(read_letters(cluster, replay), 1):
            done[TopicPartition(replay.topic, record.partition)] = record.offset + 1
            if letter is not None:
                producer.send(
                    letter.topic,
                    letter.value,
                    key=letter.key,
                    headers=letter.headers,
                    timestamp=letter.timestamp,
                )
            if number % COMMIT_INTERVAL == 0:
                producer.flush()
                commit_progress(cluster, group, done)
    commit_progress(cluster, group, replay.ends)


def commit_progress(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    GroupAdmin(cluster).set_offsets(group, offsets, retention_ms=PROGRESS_RETENTION_MS)


def read_letters(
    cluster: Cluster, replay: Replay
) -> Iterator[tuple[ConsumedRecord, DeadLetter | None]]:
    """Yield the committed records and their letters, or None for those with other reasons. Raises NotADeadLetter.

    A replayed record may be rejected again, and come after `ends`.
    """
    ends = replay.ends
    unread = {each: FromOffset(at) for each, at in replay.starts.items() if at < ends[each]}
    if not unread:
        return
    consumer = Consumer(cluster, unread, is_committed_only=True)
    while any(consumer.positions[each] < ends[each] for each in unread):
        for record in consumer.poll(1.0):
            if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                yield record, chosen_letter(record, replay)


def chosen_letter(record: ConsumedRecord, replay: Replay) -> DeadLetter | None:
    """Return the original record, or None if its reason does not match. Raises NotADeadLetter.

    With `--to`, a record without the headers of a dead letter is accepted.
    """
    if replay.target is not None:
        named = (*record.headers, (SOURCE_HEADERS["topic"], replay.target.encode()))
        record = record._replace(headers=named)
    letter = parse_dead_letter(record)
    if replay.pattern is not None and not replay.pattern.search(letter.reason):
        return None
    if letter.topic == replay.topic:
        place = f"{record.topic}-{record.partition}, offset {record.offset}"
        hint = "--to NAME sends all letters to another topic"
        raise NotADeadLetter(f"{place}: came from this topic itself; {hint}")
    return letter


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
