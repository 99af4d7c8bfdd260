"""`barnabas controller show`: the controller and its epoch.

Metadata responses of every Kafka cluster name the controller. No response has the controller epoch; Barnabas publishes
it in its history of state changes.
"""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.brokers.list import NO_CONTROLLER, address_fields
from barnabas.cli.connection import connect, connection_options
from barnabas.cli.options import output_option, timeout_option, watch_option
from barnabas.cli.terminal.output import OutputFormat, show_or_watch
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FromEnd
from barnabas.errors import ApiError
from barnabas.history.event import read_event
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import TopicPartition

LAST_EVENTS = 2000  # read from the end of the history, which may end with many events of groups

HINT = (
    "`barnabas brokers list` shows which brokers are alive; one of them is elected within moments"
)


@click.group()
def controller() -> None:
    """Show which broker is the controller."""


@controller.command("show")
@watch_option
@connection_options
@timeout_option
@output_option
def show_controller(
    watch: bool, bootstrap_servers: str, timeout_s: float, output: OutputFormat
) -> None:
    """Show the controller: its broker, its address and, if known, its epoch."""
    with connect(bootstrap_servers, timeout_s=timeout_s) as cluster:
        show_or_watch(watch, output, lambda: controller_document(cluster), controller_text)


def controller_document(cluster: Cluster) -> dict[str, Any]:
    view = cluster.refresh([])
    broker = view.brokers.get(view.controller)
    return {
        "controller": None if broker is None else broker.id,
        **address_fields(broker),
        "epoch": None if broker is None else read_controller_epoch(cluster, broker.id),
    }


def read_controller_epoch(cluster: Cluster, controller_id: int) -> int | None:
    """Return the epoch of the last event in the history. None without events, or if another controller recorded it."""
    try:
        if STATE_CHANGES not in cluster.refresh([STATE_CHANGES]).topics:
            return None
        starts = {TopicPartition(STATE_CHANGES, 0): FromEnd(LAST_EVENTS)}
        lines = [record.value for record in Consumer(cluster, starts).records(stop_at_end=True)]
    except ApiError:
        return None  # the controller is shown even if the history cannot be read
    events = [event for line in lines if (event := read_event(line)) is not None]
    last = max(events, key=lambda event: event.key, default=None)
    return None if last is None or last.broker != controller_id else last.epoch


def controller_text(document: dict[str, Any]) -> str:
    if document["controller"] is None:
        return f"{NO_CONTROLLER}\n{HINT}"
    rack = f", rack {document['rack']}" if document["rack"] else ""
    epoch = "" if document["epoch"] is None else f", epoch {document['epoch']}"
    return f"broker {document['controller']} at {document['host']}:{document['port']}{rack}{epoch}"
