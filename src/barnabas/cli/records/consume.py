r"""`barnabas consume`: read records of topics to standard output, in order within each partition.

    barnabas consume orders                           new records, until interrupted
    barnabas consume orders -e                        all existing records, then stop
    barnabas consume orders -O @-1h -f '%T %k: %s\n'  the last hour, then new records
    barnabas consume orders -O -10 -o json | jq .     the last ten of each partition, then new ones, as JSON lines
    barnabas consume orders payments -f '%t %s\n'     two topics, each value after the name of its topic
    barnabas consume --regex 'web-.*'                 all topics that match, also new ones
    barnabas consume orders --group billing           as a member of a group, whose members share the partitions

A pipe gets the raw bytes. On a terminal, control characters are escaped. A member of a group commits the offsets of
records that were written to standard output, about every second and at the end. On Ctrl-C and SIGTERM it leaves the
group, so that the others do not wait for its session to time out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.records.start_position import parse_start
from barnabas.cli.records.topic_selection import (
    MatchingConsumer,
    compile_patterns,
    select_topics,
)
from barnabas.cli.terminal.contents import ContentOptions, content_options
from barnabas.cli.terminal.formats import (
    Filter,
    Formatter,
    RecordContents,
    compile_filter,
    compile_format,
    delimiter_option,
    record_document,
)
from barnabas.cli.terminal.output import (
    OutputFormat,
    number_ranges,
    print_note,
    raise_if_reader_gone,
    to_json,
    to_yaml,
    write_out,
)
from barnabas.cli.terminal.signals import raise_on_signals
from barnabas.cli.topics.lookup import complete_topics, find_partitions
from barnabas.client.blocking import now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, ConsumedRecord, Consumer, End, FromOffset, Start
from barnabas.client.offsets import earliest_offsets, latest_offsets
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.group_consumer import GroupConsumer


@click.command()
@click.argument(
    "topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics
)
@click.option(
    "--regex",
    "is_regex",
    is_flag=True,
    help="TOPIC is a regular expression that matches the whole name. Topics that are created later "
    "are read too, except with --group.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Read only this partition; repeatable.",
)
@click.option(
    "-O",
    "--offset",
    show_default="end; with -e, beginning",
    metavar="WHERE",
    help="Where to start: beginning, end, 1234, -10 (from the end), @1700000000000 (ms), @-1h, "
    "@2024-05-01T08:00.",
)
@click.option(
    "-g",
    "--group",
    metavar="NAME",
    help="Share the partitions with the other members of this group, and resume from its committed "
    "offsets; -O applies only without a committed offset.",
)
@click.option(
    "-c", "--count", type=click.IntRange(min=1), metavar="N", help="Stop after N records."
)
@click.option(
    "-e", "--exit", "stop_at_end", is_flag=True, help="Stop at the end of all partitions."
)
@click.option(
    "-f",
    "--format",
    "template",
    metavar="TEXT",
    help="Output format, as in kcat: %t %p %o %T %k %K %s %S %h, \\n \\t. "
    "Control characters are escaped on a terminal, raw in a pipe.",
)
@click.option(
    "-K", "--key-delimiter", metavar="TEXT", help="Write each key and this text before its value."
)
@delimiter_option
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="read_committed skips records of aborted transactions, and stops before the first open one.",
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="EXPRESSION",
    help="value:TEXT, key:TEXT, value~REGEX or key~REGEX; filters are combined with AND.",
)
@content_options
@cluster_command
def consume(
    cluster: Cluster,
    topics: tuple[str, ...],
    is_regex: bool,
    partitions: tuple[int, ...],
    offset: str | None,
    group: str | None,
    count: int | None,
    stop_at_end: bool,
    template: str | None,
    key_delimiter: str | None,
    delimiter: str,
    isolation_level: str,
    filters: tuple[str, ...],
    output: OutputFormat,
    **formats: Any,
) -> None:
    """Read records of one or more topics to standard output, one per line.

    Example: barnabas consume --regex 'web-.*' -f '%t %s\\n'
    """
    # With -e, a start at the end would read nothing.
    start = parse_start(offset or ("beginning" if stop_at_end else "end"), now_ms())
    chosen_formats = ContentOptions(**formats)
    chosen_formats.check()
    patterns = compile_patterns(topics) if is_regex else ()

    def new_formatter(topic: str) -> Formatter:
        contents = RecordContents(chosen_formats.of_keys(topic), chosen_formats.of_values(topic))
        return record_formatter(output, template, key_delimiter, delimiter, contents)

    write = TopicFormatters(new_formatter)
    write.formatter(topics[0])  # raises for wrong options
    compiled = [compile_filter(expression) for expression in filters]
    if group is not None and partitions:
        raise ConfigError(
            "--partition", "cannot be combined with --group: its members share all partitions"
        )
    if partitions and (is_regex or len(topics) > 1):
        raise ConfigError("--partition", "needs a single topic")
    chosen = select_topics(cluster, topics, patterns)
    is_committed_only = isolation_level == "read_committed"
    if group is not None:
        with join_group(
            cluster, group, chosen, start, is_committed_only=is_committed_only
        ) as member:
            for batch in filtered_batches(member, stop_at_end, count, compiled, member.processed):
                write_out(b"".join([write(record) for record in batch]))
        return
    numbered = [each for name in chosen for each in find_partitions(cluster, name, partitions)]
    starts = clamp_offsets(cluster, dict.fromkeys(numbered, start))
    watched_topics = [] if partitions or stop_at_end else chosen
    # With `reset`, the consumer continues with the oldest record if retention deleted the next one.
    consumer = Consumer(
        cluster,
        starts,
        reset=Beginning(),
        watched_topics=watched_topics,
        is_committed_only=is_committed_only,
    )
    if isinstance(start, End) and not stop_at_end and sys.stderr.isatty():
        names = ", ".join(chosen)
        print_note(f"waiting for new records of {names}; -O beginning reads existing records")
    source: RecordSource = consumer
    if patterns and not stop_at_end:
        source = MatchingConsumer(consumer, chosen, patterns)
    for batch in filtered_batches(source, stop_at_end, count, compiled):
        write_out(b"".join([write(record) for record in batch]))


class TopicFormatters:
    """Formats each record with the formatter of its topic: the names of Avro schemas depend on the topic."""

    def __init__(self, new_formatter: Callable[[str], Formatter]) -> None:
        self.new_formatter = new_formatter
        self.by_topic: dict[str, Formatter] = {}

    def formatter(self, topic: str) -> Formatter:
        if topic not in self.by_topic:
            self.by_topic[topic] = self.new_formatter(topic)
        return self.by_topic[topic]

    def __call__(self, record: ConsumedRecord) -> bytes:
        return self.formatter(record.topic)(record)


@contextmanager
def join_group(
    cluster: Cluster,
    group: str,
    topics: Sequence[str],
    start: Start,
    *,
    is_committed_only: bool,
) -> Iterator[GroupConsumer]:
    """Join the group, and leave it at the end. Without a committed offset, read from `start`."""
    # Imported here because a consumer without a group does not need them.
    from barnabas.cli.groups.lookup import reject_empty_name
    from barnabas.client.group_consumer import GroupConsumer

    def report(text: str) -> None:
        if sys.stderr.isatty():
            print_note(f"group {group}: {text}")

    def report_assignment(added: list[TopicPartition]) -> None:
        waits = "waits: there are more members than partitions"
        report(f"this member {f'reads {assignment_text(added)}' if added else waits}")

    reject_empty_name("--group", group)
    raise_on_signals()
    report("joining")
    with GroupConsumer(
        cluster,
        group,
        topics,
        start=start,
        reset=Beginning(),
        is_committed_only=is_committed_only,
        on_assigned=report_assignment,
    ) as consumer:
        yield consumer


def assignment_text(partitions: Sequence[TopicPartition]) -> str:
    """
    >>> assignment_text([TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 0)])
    'a 0, b 0-1'
    """
    numbers: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        numbers.setdefault(partition.topic, []).append(partition.partition)
    return ", ".join(f"{topic} {number_ranges(found)}" for topic, found in numbers.items())


class RecordSource(Protocol):
    """A Consumer or a GroupConsumer."""

    @property
    def at_end(self) -> bool: ...
    def poll(self, timeout_s: float) -> list[ConsumedRecord]: ...


def filtered_batches(
    source: RecordSource,
    stop_at_end: bool,
    count: int | None,
    filters: list[Filter],
    on_written: Callable[[Sequence[ConsumedRecord] | None], None] = lambda _: None,
) -> Iterator[list[ConsumedRecord]]:
    """Yield the records of each poll that match all filters, up to `count` in total.

    After each batch, `on_written` is called with the processed records, or with None for all polled records.
    """
    while not (stop_at_end and source.at_end):
        polled = source.poll(1.0)
        found = [record for record in polled if all(matches(record) for matches in filters)]
        if count is not None:
            found = found[:count]
            count -= len(found)
        if found:
            yield found
        on_written(polled[: polled.index(found[-1]) + 1] if found and count == 0 else None)
        if count == 0:
            return
        raise_if_reader_gone()


def clamp_offsets(
    cluster: Cluster, starts: dict[TopicPartition, Start]
) -> dict[TopicPartition, Start]:
    """Move a start offset into the range of each partition. Raise OFFSET_OUT_OF_RANGE if it is in the range of none."""
    offsets = {
        each: start.offset for each, start in starts.items() if isinstance(start, FromOffset)
    }
    if not offsets:
        return starts
    first, end = earliest_offsets(cluster, offsets), latest_offsets(cluster, offsets)
    if not any(first[each] <= offset <= end[each] for each, offset in offsets.items()):
        (partition, offset), *_ = offsets.items()
        why = f"{partition} has offsets {first[partition]} to {end[partition]}, not {offset}"
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
    moved = {
        each: FromOffset(min(max(offset, first[each]), end[each]))
        for each, offset in offsets.items()
    }
    return {**starts, **moved}


def record_formatter(
    output: OutputFormat,
    template: str | None,
    key_delimiter: str | None,
    delimiter: str,
    contents: RecordContents,
) -> Formatter:
    if template is not None and output is not OutputFormat.TEXT:
        raise ConfigError("--format", f"cannot be combined with -o {output}")
    if template is not None and key_delimiter is not None:
        raise ConfigError("--format", "cannot be combined with --key-delimiter")
    match output:
        case OutputFormat.JSON:
            return lambda record: f"{to_json(record_document(record, contents))}\n".encode()
        case OutputFormat.YAML:
            return lambda record: f"---\n{to_yaml(record_document(record, contents))}\n".encode()
        case OutputFormat.TEXT:
            if template is None:
                key = "" if key_delimiter is None else "%k" + key_delimiter.replace("%", "%%")
                template = f"{key}%s{delimiter.replace('%', '%%')}"
            return compile_format(template, contents, for_terminal=sys.stdout.isatty())
