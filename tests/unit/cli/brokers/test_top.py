"""`barnabas top`: rates from two pages of metrics, and the table."""

from __future__ import annotations

import pytest

from barnabas.cli.brokers.broker_activity import (
    BrokerCounters,
    activity_of,
    counters_from_metrics,
)
from barnabas.cli.brokers.top import metrics_url, top_text

PAGE = """\
# TYPE kafka_server_brokertopicmetrics_messagesin_total counter
kafka_server_brokertopicmetrics_messagesin_total {messages}
kafka_server_brokertopicmetrics_messagesin_total{{topic="a \\" }} 1"}} 7
kafka_server_brokertopicmetrics_bytesin_total 2000
barnabas_build_info{{version="1",mode="compiled",broker="1",cluster="c"}} 1
kafka_server_brokertopicmetrics_bytesout_total 0
kafka_network_requestmetrics_requests_total{{request="Produce"}} {produces}
kafka_network_requestmetrics_requests_total{{request="Fetch"}} 4
kafka_network_requestmetrics_requests_total{{request="FetchConsumer"}} 3
kafka_network_requestmetrics_requests_total{{request="FetchFollower"}} 1
kafka_network_requestmetrics_totaltimems{{request="Produce",quantile="0.99"}} {p99}
kafka_server_replicamanager_leadercount 5
kafka_server_replicamanager_underreplicatedpartitions 2
nonsense
kafka_server_replicamanager_leadercount{{a="b"}} none
"""


def page(messages: int, produces: int, p99: str = "1.5") -> str:
    return PAGE.format(messages=messages, produces=produces, p99=p99)


def test_rates_are_differences_per_second() -> None:
    before = counters_from_metrics(page(100, 10), 50.0, 1, "c")
    now = counters_from_metrics(page(300, 30), 54.0, 1, "c")
    assert activity_of(before, now) == {
        "messages_in_per_s": 50.0,
        "bytes_in_per_s": 0.0,
        "bytes_out_per_s": 0.0,
        "requests_per_s": 5.0,
        "produce_p99_ms": 1.5,
        "leads": 5,
        "under_replicated": 2,
    }


def test_rates_are_unknown_at_first_and_after_a_restart() -> None:
    now = counters_from_metrics(page(100, 10, "NaN"), 50.0, 1, "c")
    assert activity_of(None, now)["messages_in_per_s"] is None
    restarted = counters_from_metrics(page(1, 10, "NaN"), 52.0, 1, "c")
    activity = activity_of(now, restarted)
    assert activity["messages_in_per_s"] is None
    assert activity["requests_per_s"] == 0.0
    assert activity["produce_p99_ms"] is None


def test_page_of_something_else_is_refused() -> None:
    with pytest.raises(KeyError):
        counters_from_metrics("<html>", 0.0, 1, "c")


@pytest.mark.parametrize(("broker", "cluster"), [(2, "c"), (1, "d"), (1, None)])
def test_page_of_another_broker_is_refused(broker: int, cluster: str | None) -> None:
    with pytest.raises(KeyError):
        counters_from_metrics(page(100, 10), 0.0, broker, cluster)


def test_url_needs_a_known_port() -> None:
    assert metrics_url("h", "[::1]:9308") == "http://[::1]:9308/metrics"
    assert metrics_url("h", ":9308") == "http://h:9308/metrics"
    assert metrics_url("h", "nonsense") is None


def test_table_shows_unknown_numbers_as_dashes_and_says_why() -> None:
    counters = BrokerCounters(at_s=0.0, leaders=3, under_replicated=1)
    activity = activity_of(None, counters)
    row = {"broker": 1, "controller": True, "source": "protocol", **activity}
    table, note = top_text({"controller": 1, "brokers": [row]}).split("\n\n")
    assert table.splitlines()[1].split() == ["1", *"-----", "3", "1", "controller"]
    assert note.startswith("no metrics from broker 1: set barnabas.http.listener")
    assert "no controller now" in top_text({"controller": None, "brokers": [row]})
