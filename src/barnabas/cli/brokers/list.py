"""`barnabas brokers list`: the brokers of the cluster, with their numbers of leaders and replicas."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.connection import connect, connection_options
from barnabas.cli.options import output_option, timeout_option, watch_option
from barnabas.cli.terminal.colour import Style, paint
from barnabas.cli.terminal.output import OutputFormat, format_table, show_or_watch
from barnabas.client.view import BrokerView, ClusterView
from barnabas.model import BrokerId

NO_CONTROLLER = "no controller now: topics cannot be created or deleted, and no leader is elected"


@click.command("list")
@watch_option
@connection_options
@timeout_option
@output_option
def list_brokers(
    watch: bool, bootstrap_servers: str, timeout_s: float, output: OutputFormat
) -> None:
    """List the brokers: which one is controller, and the number of leaders and replicas on each.

    A broker that is down is listed as long as partitions are assigned to it.
    """
    with connect(bootstrap_servers, timeout_s=timeout_s) as cluster:
        show_or_watch(watch, output, lambda: brokers_document(cluster.refresh(None)), broker_table)


def brokers_document(view: ClusterView) -> dict[str, Any]:
    partitions = [each for topic in view.topics.values() for each in topic.partitions]
    assigned = {BrokerId(broker) for each in partitions for broker in each.replicas}
    return {
        "cluster_id": view.cluster_id,
        "controller": view.controller if view.controller in view.brokers else None,
        "brokers": [
            {
                "broker": broker,
                **address_fields(view.brokers.get(broker)),
                "alive": broker in view.brokers,
                "controller": broker == view.controller,
                "leads": sum(each.leader == broker for each in partitions),
                "replicas": sum(broker in each.replicas for each in partitions),
                "in_sync": sum(broker in each.isr for each in partitions),
            }
            for broker in sorted(assigned | view.brokers.keys())
        ],
    }


def address_fields(broker: BrokerView | None) -> dict[str, Any]:
    if broker is None:
        return {"host": None, "port": None, "rack": None}
    return {"host": broker.host, "port": broker.port, "rack": broker.rack}


def broker_table(document: dict[str, Any]) -> str:
    rows = document["brokers"]
    with_racks = any(row["rack"] for row in rows)
    heads = ["broker", "address", *(["rack"] if with_racks else [])]
    lines = [
        [
            row["broker"],
            f"{row['host']}:{row['port']}" if row["alive"] else paint("not alive", Style.BAD),
            *([row["rack"] or ""] if with_racks else []),
            row["leads"],
            row["replicas"],
            row["in_sync"],
            "controller" if row["controller"] else "",
        ]
        for row in rows
    ]
    text = format_table([*heads, "leads", "replicas", "in sync", ""], lines)
    warning = paint(NO_CONTROLLER, Style.BAD)
    return f"{text}\n\n{warning}" if document["controller"] is None else text
