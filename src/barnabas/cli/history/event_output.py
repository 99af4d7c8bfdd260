"""Output that the history commands share: past events as one document, and new ones with --follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import click

from barnabas.cli.history.timeline import Event
from barnabas.cli.records.start_position import parse_time
from barnabas.cli.terminal.output import (
    OutputFormat,
    print_note,
    printable_document,
    raise_if_reader_gone,
    show,
    to_json,
    to_yaml,
    write_out,
)
from barnabas.client.blocking import now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, ConsumedRecord, Consumer, FromTime, Start
from barnabas.history.event import skipped_text
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import TopicPartition
from barnabas.printable import printable

since_option = click.option(
    "--since", metavar="WHEN", help="Only events since -1h, 2024-05-01T08:00 or a time in ms."
)
follow_option = click.option("--follow", is_flag=True, help="Stream new events, until interrupted.")


class Timeline(Protocol):
    """The events of one name."""

    malformed: int

    def add(self, records: Iterable[ConsumedRecord]) -> list[Event]: ...

    def in_order(self) -> list[Event]: ...


class EventNarrator(Protocol):
    def lines(self, events: list[Event]) -> Iterator[str]: ...


def parse_start(since: str | None) -> Start:
    return Beginning() if since is None else FromTime(parse_time(since, now_ms(), "--since"))


def show_history(
    cluster: Cluster,
    start: Start,
    timeline: Timeline,
    narrator: EventNarrator,
    *,
    head: dict[str, Any],
    follow: bool,
    output: OutputFormat,
    report_nothing: Callable[[], None],
) -> None:
    """Show the events of a timeline. `head` are the first fields of the document.

    Calls `report_nothing` if there are no events. It raises an error if the name is unknown.
    """
    consumer = Consumer(
        cluster, {TopicPartition(STATE_CHANGES, 0): start}, reset=Beginning(), fetch_wait_ms=100
    )
    timeline.add(consumer.records(stop_at_end=True))
    if timeline.malformed:
        print_note(skipped_text(timeline.malformed))
    events = timeline.in_order()
    if not events and not follow:
        report_nothing()
    if not follow:
        show(output, {**head, "events": events}, lambda shown: events_text(shown, narrator))
        return
    write_events(events, output, narrator)
    while True:
        write_events(timeline.add(consumer.poll(1.0)), output, narrator)
        raise_if_reader_gone()


def write_events(events: list[Event], output: OutputFormat, narrator: EventNarrator) -> None:
    lines: Iterable[str]
    match output:
        case OutputFormat.JSON:
            lines = map(to_json, events)
        case OutputFormat.YAML:
            lines = (f"---\n{to_yaml(event)}" for event in events)
        case OutputFormat.TEXT:
            texts = narrator.lines(printable_document(events))
            lines = (printable(text, keep="\n") for text in texts)
    write_out("".join(f"{line}\n" for line in lines).encode())


def events_text(document: dict[str, Any], narrator: EventNarrator) -> str:
    nothing = "only requests; -v shows them" if document["events"] else "no events"
    return "\n".join(narrator.lines(document["events"])) or nothing
