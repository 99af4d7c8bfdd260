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

import click

from barnabas.cli.connection import connect, connection_options
from barnabas.cli.history.availability import report_no_events, require_history
from barnabas.cli.history.event_output import (
    follow_option,
    parse_start,
    show_history,
    since_option,
)
from barnabas.cli.history.narrator import Narrator
from barnabas.cli.history.timeline import TopicEvents
from barnabas.cli.options import output_option, timeout_option
from barnabas.cli.terminal.output import OutputFormat
from barnabas.cli.topics.lookup import complete_topics
from barnabas.printable import printable


@click.command()
@click.argument("name", shell_complete=complete_topics)
@since_option
@follow_option
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also show the requests to brokers and their responses; json and yaml always have them.",
)
@connection_options
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
    start = parse_start(since)
    with connect(bootstrap_servers, timeout_s=timeout_s) as cluster:
        require_history(cluster, name)
        show_history(
            cluster,
            start,
            TopicEvents(name),
            Narrator(printable(name), with_requests=verbose),
            head={"topic": name},
            follow=follow,
            output=output,
            report_nothing=lambda: report_no_events(cluster, name, start),
        )
