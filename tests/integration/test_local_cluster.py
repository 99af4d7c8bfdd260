"""LocalCluster as tests and notebooks use it: repeated starts and stops, and restarts."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from barnabas import LocalCluster
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.cluster.in_process import ClusterBroker
from barnabas.errors import AddressInUse, ConfigError, ErrorCode, RegistryError
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from support.process import ENVIRONMENT
from support.waiting import eventually
from tests.compatibility.raw import Raw

TRANSACTION = 1


def topics(servers: str) -> list[str]:
    with Cluster(servers) as cluster:
        return sorted(view.name for view in Admin(cluster).list_topics())


def create(servers: str, name: str) -> None:
    with Cluster(servers) as cluster:
        Admin(cluster).create_topics([NewTopic(name=name, partitions=1)])


def controller_of(cluster: LocalCluster) -> int | None:
    return cluster.controller_id


def test_starting_running_cluster_changes_nothing() -> None:
    cluster = LocalCluster().start()
    servers = cluster.bootstrap_servers
    create(servers, "orders")
    with cluster as same:
        assert same.bootstrap_servers == servers
        assert topics(servers) == ["orders"]
    cluster.stop()


def test_restarted_cluster_keeps_its_topics(tmp_path: Path) -> None:
    cluster = LocalCluster(data=tmp_path)
    for name in ("one", "two"):
        with cluster:
            create(cluster.bootstrap_servers, name)
    with cluster:
        assert topics(cluster.bootstrap_servers) == ["one", "two"]


def test_every_broker_knows_created_topic_and_no_broker_knows_deleted_topic() -> None:
    def known() -> list[list[str]]:
        return [topics(broker.address) for broker in cluster.brokers.values()]

    with LocalCluster(brokers=3) as cluster:
        for number in range(10):
            name = cluster.create_topic(f"orders-{number}", partitions=30)
            assert known() == [[name]] * 3
            cluster.delete_topics([name])
            assert known() == [[]] * 3


def test_stopped_cluster_has_no_address() -> None:
    cluster = LocalCluster()
    with pytest.raises(RuntimeError, match="start"):
        _ = cluster.bootstrap_servers
    with cluster:
        assert ":" in cluster.bootstrap_servers
    with pytest.raises(RuntimeError, match="start"):
        _ = cluster.bootstrap_servers


def test_temporary_directory_exists_only_while_cluster_runs() -> None:
    cluster = LocalCluster()
    assert not cluster.data.exists()
    for _ in range(2):
        with cluster:
            assert cluster.data.stat().st_mode & 0o777 == 0o700
        assert not cluster.data.exists()


@pytest.mark.parametrize("call", ["", ".start()"], ids=["never started", "never stopped"])
def test_program_without_stop_leaves_no_directory(tmp_path: Path, call: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"from barnabas import LocalCluster; c = LocalCluster(){call}"],
        env={**ENVIRONMENT, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(tmp_path.iterdir())


def test_controller_is_running_broker_after_election() -> None:
    settings = {"zookeeper.session.timeout.ms": 1_000}
    with LocalCluster(brokers=3, settings=settings) as cluster:
        first: ClusterBroker = cluster.controller
        assert first.id == cluster.controller_id
        first.kill()
        second = cluster.controller
        assert second.is_running
        assert second.id != first.id
        second.kill(expire=False)  # its znode stays until the session times out
        assert cluster.controller_id == second.id
        assert cluster.controller.id not in (first.id, second.id)


def test_controller_without_running_broker_is_an_error() -> None:
    with LocalCluster() as cluster:
        cluster.brokers[1].kill()
        with pytest.raises(RegistryError, match="no broker is running"):
            _ = cluster.controller
    with pytest.raises(RuntimeError, match="not running"):
        _ = cluster.controller


def test_settings_may_be_numbers_and_booleans() -> None:
    with LocalCluster(settings={"num.partitions": 3, "auto.create.topics.enable": False}):
        pass
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        LocalCluster(settings={"num.partitions": "three"})


def test_broker_can_be_killed_and_restarted(tmp_path: Path) -> None:
    with LocalCluster(data=tmp_path) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, "orders")
        assert controller_of(cluster) == 1
        cluster.brokers[1].kill()
        assert controller_of(cluster) is None
        cluster.brokers[1].kill()
        cluster.brokers[1].start()
        assert cluster.bootstrap_servers == servers
        assert topics(servers) == ["orders"]


def test_two_threads_that_start_one_broker_both_wait_until_it_is_ready() -> None:
    with LocalCluster(brokers=2) as cluster, ThreadPoolExecutor(2) as threads:
        broker = cluster.brokers[2]
        broker.kill()
        both = Barrier(2)

        def start() -> tuple[object, set[int]]:
            both.wait(30)
            broker.start()
            with Cluster(cluster.brokers[1].address) as client:
                return broker.instance, {*client.refresh([]).brokers}

        futures = [threads.submit(start) for _ in range(2)]
        (first, seen), (second, also_seen) = [each.result() for each in futures]
        assert first is second, "the broker was started once"
        assert seen == also_seen == {1, 2}


def test_broker_of_stopped_cluster_cannot_be_started() -> None:
    cluster = LocalCluster()
    with pytest.raises(RuntimeError, match="not running"):
        cluster.brokers[1].start()
    with cluster:
        assert repr(cluster.brokers[1]).endswith("running>")
    assert repr(cluster.brokers[1]).endswith("down>")


def test_port_in_use_is_reported_and_leaks_nothing() -> None:
    with LocalCluster() as first:
        port = first.brokers[1].endpoint.port
        second = LocalCluster(port=port)
        with pytest.raises(AddressInUse, match=str(port)):
            second.start()
        assert not second.data.exists()


def test_invalid_broker_count_is_rejected() -> None:
    for wrong in ("3", 3.0, True, None):
        with pytest.raises(TypeError, match="the number of brokers, as in brokers=3, not "):
            LocalCluster(brokers=wrong)  # type: ignore[arg-type]


def test_repr_shows_brokers_and_data_directory(tmp_path: Path) -> None:
    cluster = LocalCluster(brokers=2, data=tmp_path)
    assert repr(cluster) == f"<LocalCluster of 2, not running, data in {tmp_path}>"
    with cluster:
        cluster.brokers[2].kill()
        first, second = (broker.address for broker in cluster.brokers.values())
        assert repr(cluster) == (
            f"<LocalCluster [<broker 1 at {first}: running>, <broker 2 at {second}: down>], "
            f"data in {tmp_path}>"
        )


def test_broker_methods_are_idempotent() -> None:
    with LocalCluster() as cluster:
        (broker,) = cluster.brokers.values()
        broker.kill()
        for call in (broker.pause, broker.resume, broker.stop, broker.kill):
            call()
            assert not broker.is_running
        broker.start()
        broker.start()
        broker.resume()
        assert broker.is_running


def test_transaction_coordinator_is_found_with_one_broker() -> None:
    request = FindCoordinatorRequest(coordinator_keys=("billing",), key_type=TRANSACTION)
    with LocalCluster() as cluster, Raw(cluster.bootstrap_servers) as raw:

        def is_found() -> bool:
            (found,) = raw.ask(request, FindCoordinatorResponse).coordinators
            return found.error_code == ErrorCode.NONE

        eventually(is_found, "a coordinator of transactions", 20)
