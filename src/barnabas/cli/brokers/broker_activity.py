"""Activity of one broker between two moments: rates from its counters, and its current state. Pure.

The counters come from the broker's /metrics. Without it, from the protocol: then only records are counted, by the end
offsets of the partitions that the broker leads.
"""

from __future__ import annotations

from math import isnan
from typing import Any

from msgspec import Struct

from barnabas.metrics.reading import Samples, read_samples

MESSAGES_IN = "kafka_server_brokertopicmetrics_messagesin_total"
BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"
REQUESTS = "kafka_network_requestmetrics_requests_total"
TOTAL_TIME = "kafka_network_requestmetrics_totaltimems"
UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions"
LEADERS = "kafka_server_replicamanager_leadercount"
INFO = "barnabas_build_info"
NAMES = (INFO, MESSAGES_IN, BYTES_IN, BYTES_OUT, REQUESTS, TOTAL_TIME, UNDER_REPLICATED, LEADERS)
FETCH_KINDS = ("FetchConsumer", "FetchFollower")
"""The requests of `Fetch`, which are also counted by kind."""


class BrokerCounters(Struct, frozen=True, kw_only=True):
    """Counters and state of a broker. None: unknown, because the broker serves no metrics."""

    at_s: float
    """Time of the reading, of a monotonic clock."""
    messages_in: float | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None
    requests: float | None = None
    produce_p99_ms: float | None = None
    leaders: int
    under_replicated: int


def counters_from_metrics(
    text: str, at_s: float, broker: int, cluster: str | None
) -> BrokerCounters:
    """Read a page of metrics. Raises KeyError if it is not that of this broker, or if the broker has not started."""
    samples = read_samples(text, NAMES)
    info = next((dict(labels) for name, labels in samples if name == INFO), {})
    if (info["broker"], info["cluster"]) != (str(broker), cluster):
        raise KeyError(INFO)
    p99 = samples.get((TOTAL_TIME, frozenset({("request", "Produce"), ("quantile", "0.99")})))
    return BrokerCounters(
        at_s=at_s,
        messages_in=plain(samples, MESSAGES_IN),
        bytes_in=plain(samples, BYTES_IN),
        bytes_out=plain(samples, BYTES_OUT),
        requests=sum(
            value
            for (name, labels), value in samples.items()
            if name == REQUESTS and dict(labels)["request"] not in FETCH_KINDS
        ),
        produce_p99_ms=None if p99 is None or isnan(p99) else p99,
        leaders=int(plain(samples, LEADERS)),
        under_replicated=int(plain(samples, UNDER_REPLICATED)),
    )


def plain(samples: Samples, name: str) -> float:
    """Return the sample without labels."""
    return samples[name, frozenset()]


def activity_of(before: BrokerCounters | None, now: BrokerCounters) -> dict[str, Any]:
    """Return the fields of a broker in the document. A rate is None if it is unknown, or after a restart."""
    return {
        "messages_in_per_s": rate(before, now, "messages_in"),
        "bytes_in_per_s": rate(before, now, "bytes_in"),
        "bytes_out_per_s": rate(before, now, "bytes_out"),
        "requests_per_s": rate(before, now, "requests"),
        "produce_p99_ms": now.produce_p99_ms,
        "leads": now.leaders,
        "under_replicated": now.under_replicated,
    }


def rate(before: BrokerCounters | None, now: BrokerCounters, name: str) -> float | None:
    earlier: float | None = getattr(before, name, None)
    later: float | None = getattr(now, name)
    if before is None or earlier is None or later is None or later < earlier:
        return None
    return round((later - earlier) / max(now.at_s - before.at_s, 0.001), 1)
