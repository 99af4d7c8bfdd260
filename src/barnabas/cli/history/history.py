"""`barnabas topics history`: the state changes of one topic, each with its time and cause.

    2026-05-01 controller 1, epoch 7: TopicsChanged#4
      08:00:00.123  partition 0: new, on brokers 2,3,1
      08:00:00.131  partition 0: online, leader 2 in epoch 0, ISR 2,3,1
      08:00:00.131  LeaderAndIsr #19 to broker 3: partition 0        with -v
      08:00:00.140  broker 3 answered LeaderAndIsr #19: done         with -v

The events come from the topic `__state_changes`. It may contain an event more than once, and events of a broker that
was down are published late. The command shows each event once, ordered by (epoch, sequence); --follow appends new ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from barnabas.cli.history.availability import report_no_events, require_history
from barnabas.cli.history.narrator import Narrator
from barnabas.cli.history.timeline import Event, TopicEvents
from barnabas.cli.options import bootstrap_option, output_option, timeout_option
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
from barnabas.cli.topics.lookup import complete_topics
from barnabas.client.blocking import now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Consumer, FromTime
from barnabas.history.event import skipped_text
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import TopicPartition
from barnabas.printable import printable


@click.command()
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--since", metavar="WHEN", help="Only events since -1h, 2024-05-01T08:00 or a time in ms."
)
@click.option("--follow", is_flag=True, help="Stream new events, until interrupted.")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also show the requests to brokers and their responses; json and yaml always have them.",
)
@bootstrap_option
@timeout_option
@output_option
def history(
    name: str,
    since: str | None,
    follow: bool,
    verbose: bool,
    bootstrap_servers: str,
    timeout_s: float,
    output: OutputFormat,
) -> None:
    """Show the history of topic NAME: transitions and elections, each with its cause. -v adds the requests."""
    start = Beginning() if since is None else FromTime(parse_time(since, now_ms(), "--since"))
    with Cluster(bootstrap_servers, timeout_s=timeout_s) as cluster:
        require_history(cluster, name)
        consumer = Consumer(
            cluster, {TopicPartition(STATE_CHANGES, 0): start}, reset=Beginning(), fetch_wait_ms=100
        )
        timeline = TopicEvents(name)
        timeline.add(consumer.records(stop_at_end=True))
        if timeline.malformed:
            print_note(skipped_text(timeline.malformed))
        if not timeline.events and not follow:
            report_no_events(cluster, name, start)
        narrator = Narrator(printable(name), with_requests=verbose)
        if not follow:
            document = {"topic": name, "events": timeline.in_order()}
            show(output, document, lambda shown: events_text(shown, narrator))
            return
        write_events(timeline.in_order(), output, narrator)
        while True:
            write_events(timeline.add(consumer.poll(1.0)), output, narrator)
            raise_if_reader_gone()


def write_events(events: list[Event], output: OutputFormat, narrator: Narrator) -> None:
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


def events_text(document: dict[str, Any], narrator: Narrator) -> str:
    nothing = "only requests; -v shows them" if document["events"] else "no events"
    return "\n".join(narrator.lines(document["events"])) or nothing
