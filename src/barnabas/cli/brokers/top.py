"""`barnabas top`: what each broker does now, from its /metrics or, without it, from the protocol."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterable
from http.client import HTTPException
from typing import Any

import click

from barnabas.cli.brokers.broker_activity import (
    BrokerCounters,
    activity_of,
    counters_from_metrics,
)
from barnabas.cli.brokers.list import NO_CONTROLLER
from barnabas.cli.connection import connect, connection_options
from barnabas.cli.options import output_option, timeout_option
from barnabas.cli.terminal.output import OutputFormat, format_table, show_or_watch, wrap
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, ConfigResource
from barnabas.client.offsets import latest_offsets
from barnabas.client.view import BrokerView, ClusterView, PartitionView
from barnabas.cluster.settings import HTTP_LISTENER
from barnabas.config.listeners import parse_http_listener
from barnabas.errors import ApiError, ConfigError
from barnabas.model import WILDCARD_HOSTS, BrokerId, TopicPartition
from barnabas.wire.messages.describe_configs import ResourceType

FIRST_INTERVAL_S = 1.0
SCRAPE_TIMEOUT_S = 1.0
PAGE_BYTES_MAX = 64 << 20
UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@click.command("top")
@click.option("-1", "--once", is_flag=True, help="Measure one second, print it once and exit.")
@connection_options
@timeout_option
@output_option
def top(once: bool, bootstrap_servers: str, timeout_s: float, output: OutputFormat) -> None:
    """Show what each broker does now, every two seconds: bytes, records and requests per second.

    P99 is the time that 99 % of recent produce requests took at most. The numbers come from /metrics of each broker,
    which needs the setting barnabas.http.listener; `barnabas up` sets it. Without it, only records per second,
    leaders and under-replicated partitions are shown.
    """
    with connect(bootstrap_servers, timeout_s=timeout_s) as cluster:
        meter = Meter(cluster)
        meter.read()
        time.sleep(FIRST_INTERVAL_S)
        show_or_watch(not once, output, meter.read, top_text)


class Meter:
    """Reads all brokers again and again. Keeps the previous counters."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.counters: dict[BrokerId, BrokerCounters] = {}
        self.urls: dict[BrokerId, str] = {}
        # Brokers are reached directly, even if the environment names a proxy.
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def read(self) -> dict[str, Any]:
        """Return the document: the activity of each broker since the last call."""
        view = self.cluster.refresh(None)
        self.find_urls([each for each in view.brokers.values() if each.id not in self.urls])
        now = {broker: self.scrape(broker, view.cluster_id) for broker in sorted(view.brokers)}
        silent = [broker for broker, counters in now.items() if counters is None]
        offsets = self.read_offsets(view, silent)
        rows = []
        counters: dict[BrokerId, BrokerCounters] = {}
        for broker, scraped in now.items():
            read = counters[broker] = scraped or counters_from_protocol(view, broker, offsets)
            source = "protocol" if scraped is None else "metrics"
            is_controller = broker == view.controller
            activity = activity_of(self.counters.get(broker), read)
            rows.append(
                {"broker": broker, "controller": is_controller, "source": source, **activity}
            )
        self.counters = counters
        controller = view.controller if view.controller in view.brokers else None
        return {"controller": controller, "brokers": rows}

    def find_urls(self, brokers: Iterable[BrokerView]) -> None:
        """Read barnabas.http.listener of these brokers. Brokers of Kafka do not have it."""
        by_resource = {ConfigResource(ResourceType.BROKER, str(each.id)): each for each in brokers}
        if not by_resource:
            return
        admin = ConfigAdmin(self.cluster)
        try:
            described = admin.describe_configs(by_resource, names=[HTTP_LISTENER])
        except ApiError:
            return
        for resource, entries in described.items():
            value = "" if isinstance(entries, ApiError) or not entries else entries[0].value
            url = metrics_url(by_resource[resource].host, value or "")
            if url is not None:
                self.urls[by_resource[resource].id] = url

    def scrape(self, broker: BrokerId, cluster: str | None) -> BrokerCounters | None:
        """Return the counters of a broker from its metrics, or None if it does not serve them."""
        url = self.urls.get(broker)
        if url is None:
            return None
        try:
            with self.opener.open(url, timeout=SCRAPE_TIMEOUT_S) as response:
                text = response.read(PAGE_BYTES_MAX).decode("utf-8", "replace")
            return counters_from_metrics(text, time.monotonic(), broker, cluster)
        except (OSError, HTTPException, KeyError, ValueError):
            # The broker may have another address after a restart, or the address may lead to another broker.
            del self.urls[broker]
            return None

    def read_offsets(self, view: ClusterView, brokers: list[BrokerId]) -> dict[BrokerId, int]:
        """Return the sum of the end offsets of the partitions that each of these brokers leads."""
        led = {
            TopicPartition(topic.name, each.partition): each.leader
            for topic in view.topics.values()
            for each in topic.partitions
            if each.leader in brokers
        }
        sums = dict.fromkeys(brokers, 0)
        try:
            found = latest_offsets(self.cluster, led)
        except ApiError:
            return {}
        for partition, offset in found.items():
            sums[led[partition]] += offset
        return sums


def metrics_url(broker_host: str, listener: str) -> str | None:
    """Return the URL of a broker's metrics, or None if it has none or its port is unknown.

    >>> metrics_url("db1", "0.0.0.0:9308"), metrics_url("db1", "127.0.0.1:0"), metrics_url("db1", "")
    ('http://db1:9308/metrics', None, None)
    """
    try:
        endpoint = parse_http_listener(HTTP_LISTENER, listener)
    except ConfigError:
        return None
    if endpoint is None or not endpoint.port:
        return None
    host = broker_host if endpoint.host in WILDCARD_HOSTS else endpoint.host
    return f"http://{f'[{host}]' if ':' in host else host}:{endpoint.port}/metrics"


def counters_from_protocol(
    view: ClusterView, broker: BrokerId, offsets: dict[BrokerId, int]
) -> BrokerCounters:
    led: list[PartitionView] = [
        each for topic in view.topics.values() for each in topic.partitions if each.leader == broker
    ]
    return BrokerCounters(
        at_s=time.monotonic(),
        messages_in=offsets.get(broker),
        leaders=len(led),
        under_replicated=sum(len(each.isr) < len(each.replicas) for each in led),
    )


def top_text(document: dict[str, Any]) -> str:
    rows = document["brokers"]
    heads = ["broker", "in/s", "out/s", "records/s", "requests/s", "p99 ms", "leads", "under-repl."]
    lines = [
        [
            row["broker"],
            rate_text(row["bytes_in_per_s"]),
            rate_text(row["bytes_out_per_s"]),
            count_text(row["messages_in_per_s"]),
            count_text(row["requests_per_s"]),
            "-" if row["produce_p99_ms"] is None else f"{row['produce_p99_ms']:.1f}",
            row["leads"],
            row["under_replicated"],
            "controller" if row["controller"] else "",
        ]
        for row in rows
    ]
    texts = [format_table([*heads, ""], lines)]
    if document["controller"] is None:
        texts.append(NO_CONTROLLER)
    silent = [str(row["broker"]) for row in rows if row["source"] == "protocol"]
    if silent:
        note = f"no metrics from broker {', '.join(silent)}: set {HTTP_LISTENER} to an address"
        texts.append(wrap(f"{note} that this machine can reach, as in 0.0.0.0:9308", indent=0))
    return "\n\n".join(texts)


def rate_text(rate: float | None) -> str:
    """
    >>> rate_text(1_500_000), rate_text(12), rate_text(None)
    ('1.5 MB', '12 B', '-')
    """
    if rate is None:
        return "-"
    for size, unit in UNITS:
        if rate >= size:
            return f"{rate / size:.1f} {unit}"
    return f"{rate:.0f} B"


def count_text(count: float | None) -> str:
    return "-" if count is None else f"{count:,.0f}"
