"""Live clusters for explanations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas import LocalCluster
from barnabas.cli.explain import gather, group_gather, probe, registry_facts
from barnabas.metadata.topic_names import STATE_CHANGES
from tests.explain.live import SETTINGS, LiveCluster


@pytest.fixture(autouse=True)
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker, coordinator or ZooKeeper that does not answer within half a second is paused or down.

    A slow machine may exceed this. The tests explain again until they find the cause.
    """
    monkeypatch.setattr(probe, "PROBE_TIMEOUT_S", 0.5)
    monkeypatch.setattr(gather, "PROBE_TIMEOUT_S", 0.5)
    monkeypatch.setattr(group_gather, "COORDINATOR_TIMEOUT_S", 0.5)
    monkeypatch.setattr(registry_facts, "REGISTRY_TIMEOUT_MS", 500)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    data = tmp_path_factory.mktemp("live")
    with LocalCluster(brokers=3, data=data, settings=SETTINGS) as cluster:
        started = LiveCluster(cluster, data)
        started.create("first", [1, 2, 3])
        started.wait_until(STATE_CHANGES, lambda each: len(each.isr) == 3, "the history is written")
        yield started
