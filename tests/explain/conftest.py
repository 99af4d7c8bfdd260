"""Live clusters for explanations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas import LocalCluster
from barnabas.cli.explain import probe
from barnabas.metadata.topic_names import STATE_CHANGES
from tests.explain.live import SETTINGS, LiveCluster


@pytest.fixture(autouse=True)
def short_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that does not respond within this time is paused."""
    monkeypatch.setattr(probe, "PROBE_TIMEOUT_S", 1.5)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    data = tmp_path_factory.mktemp("live")
    with LocalCluster(brokers=3, data=data, settings=SETTINGS) as cluster:
        started = LiveCluster(cluster, data)
        started.create("first", [1, 2, 3])
        started.wait_until(STATE_CHANGES, lambda each: len(each.isr) == 3, "the history is written")
        yield started
