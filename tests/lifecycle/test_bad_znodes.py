"""Invalid hand-edited znodes are reported with their path and ignored, while everything else works.

Each is written while a controller runs, and before any controller runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from barnabas.metadata import znodes
from barnabas.model import TopicPartition
from barnabas.world.ports import Create
from tests.lifecycle.client import create, eventually, topics_of
from tests.lifecycle.conftest import brokers_fail
from tests.lifecycle.watched import DEADLINE_S, DONE, WatchedCluster

FAR_TOO_LONG = "long-" * 60
GOOD_STATE = b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1,2,3]}'
ASSIGNED = b'{"version":3,"topic_id":"%s","partitions":{"0":[1,2,3]},"adding_replicas":{},"removing_replicas":{}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class BadZnodes:
    """Nodes to create, in this order, and the path that the warning must name."""

    nodes: tuple[tuple[str, bytes], ...]
    warning_path: str | None


def bad_znode(path: str, data: bytes) -> BadZnodes:
    return BadZnodes(nodes=((path, data),), warning_path=path)


def topic(name: str, data: bytes) -> BadZnodes:
    return bad_znode(znodes.topic_path(name), data)


def with_state(name: str, topic_id: bytes, state: bytes) -> BadZnodes:
    partition = TopicPartition(name, 0)
    nodes = (
        (znodes.topic_path(name), ASSIGNED % topic_id),
        (znodes.partitions_path(name), b""),
        (znodes.partition_path(partition), b""),
        (znodes.state_path(partition), state),
    )
    return BadZnodes(nodes=nodes, warning_path=znodes.state_path(partition))


BAD = {
    "a topic that is not JSON": topic("not-json", b"{"),
    "a topic that is nothing": topic("nothing", b""),
    "a topic that is a list": topic("list", b"[1,2,3]"),
    "a topic nested without end": topic("nested", b"[" * 100_000),
    "a topic that is no text": topic("binary", b"\x00\xff\xfe"),
    "a topic with letters for brokers": topic("letters", b'{"version":1,"partitions":{"0":["a"]}}'),
    "a topic with letters for partitions": topic("words", b'{"version":1,"partitions":{"x":[1]}}'),
    "a topic with numbers out of range": topic(
        "large", b'{"version":1,"partitions":{"0":[99999999999]}}'
    ),
    "a topic with a partition out of range": topic(
        "distant", b'{"version":1,"partitions":{"99999999999":[1]}}'
    ),
    "a topic with a negative partition": topic(
        "negative", b'{"version":1,"partitions":{"-1":[1]}}'
    ),
    "a topic with a replica named twice": topic("twice", b'{"version":1,"partitions":{"0":[1,1]}}'),
    "a topic without replicas": topic("nobody", b'{"version":1,"partitions":{"0":[]}}'),
    "a topic with a wrong id": topic(
        "wrong-id", b'{"version":3,"topic_id":"?","partitions":{"0":[1]}}'
    ),
    "a topic whose name is too long": topic(
        FAR_TOO_LONG, b'{"version":1,"partitions":{"0":[1,2,3]}}'
    ),
    "a topic whose name is no name": topic("a b", b'{"version":1,"partitions":{"0":[1,2,3]}}'),
    "a broker that is no number": bad_znode("/brokers/ids/unknown", b"{}"),
    "a broker that is not JSON": bad_znode("/brokers/ids/77", b"{"),
    "a broker without an address": bad_znode("/brokers/ids/78", b'{"version":5,"endpoints":[]}'),
    "a broker whose number is out of range": bad_znode(
        "/brokers/ids/99999999999",
        b'{"version":5,"endpoints":["PLAINTEXT://127.0.0.1:1"]}',
    ),
    "a broker with a port out of range": bad_znode(
        "/brokers/ids/79", b'{"version":5,"endpoints":["PLAINTEXT://127.0.0.1:99999999999"]}'
    ),
    "a broker with half a character": bad_znode(
        "/brokers/ids/80",
        b'{"version":5,"endpoints":["PLAINTEXT://127.0.0.1:1"],"rack":"\\ud800"}',
    ),
    "a marker for no topic, with a child": BadZnodes(
        nodes=(
            (znodes.delete_topic_path("no-topic"), b""),
            ("/admin/delete_topics/no-topic/x", b""),
        ),
        warning_path="/admin/delete_topics/no-topic",
    ),
    "a notice that is not JSON, with a child": BadZnodes(
        nodes=(
            ("/log_dir_event_notification/log_dir_event_x", b"{"),
            ("/log_dir_event_notification/log_dir_event_x/y", b""),
        ),
        warning_path=None,
    ),
    "a child that means nothing": BadZnodes(
        nodes=(
            ("/brokers/topics/odd", ASSIGNED % b"AAAAAAAAAAAAAAAAAAAABQ"),
            ("/brokers/topics/odd/x", b""),
        ),
        warning_path=None,
    ),
}
BAD_STATES = {
    "a state that is not JSON": with_state("bad-state", b"AAAAAAAAAAAAAAAAAAAAAQ", b"{"),
    "a state without a leader": with_state("no-leader", b"AAAAAAAAAAAAAAAAAAAAAg", b'{"isr":[1]}'),
    "a state with a number without end": with_state(
        "endless", b"AAAAAAAAAAAAAAAAAAAAAw", GOOD_STATE.replace(b'"leader":1', b'"leader":1e999')
    ),
    "a state with a number out of range": with_state(
        "far", b"AAAAAAAAAAAAAAAAAAAABA", GOOD_STATE.replace(b'epoch":0', b'epoch":99999999999')
    ),
}
"""A running controller does not read them: it writes the state of a new topic and finds one there."""
OLD = (("/brokers/topics/old", b'{"version":1,"partitions":{"0":[2,3,1],"1":[3,1,2]}}'),)
HALF = (
    ("/brokers/topics/half", b'{"version":2,"partitions":{"0":[1,2,3],"1":[2,3,1],"2":[3,1,2]}}'),
    ("/brokers/topics/half/partitions", b""),
    ("/brokers/topics/half/partitions/1", b""),
    ("/brokers/topics/half/partitions/1/state", GOOD_STATE.replace(b'"leader":1', b'"leader":2')),
)
UNMARKED = (znodes.delete_topic_path("never-was"), b"")


@pytest.fixture
def cluster(edited_cluster: WatchedCluster) -> WatchedCluster:
    return edited_cluster


def plant(cluster: WatchedCluster, nodes: tuple[tuple[str, bytes], ...]) -> None:
    """Create the nodes in one transaction, before any broker can react to the first."""
    session = cluster.observer.session
    cluster.observer.run(session.multi([Create(path=path, data=data) for path, data in nodes]))


def overwrite(cluster: WatchedCluster, path: str, data: bytes) -> None:
    cluster.observer.run(cluster.observer.session.set(path, data))


def warnings_about(cluster: WatchedCluster, path: str) -> list[str]:
    whole = re.compile(re.escape(path) + r"(?![\w/-])")
    return [
        line
        for line in cluster.brokers.log().splitlines()
        if re.match(r"(\S+ \S+ )?(WARNING|ERROR) ", line) and whole.search(line)
    ]


def wait_for_warning(cluster: WatchedCluster, path: str) -> None:
    eventually(
        lambda: bool(warnings_about(cluster, path)),
        lambda: f"{path} is reported; the log:\n{cluster.brokers.log()[-3000:]}",
        DEADLINE_S,
    )


def check_warnings(cluster: WatchedCluster, planted: dict[str, BadZnodes]) -> None:
    """Check that there is exactly one warning for each."""
    for name, each in planted.items():
        if each.warning_path is not None:
            wait_for_warning(cluster, each.warning_path)
            found = warnings_about(cluster, each.warning_path)
            assert len(found) == 1, f"{name}: {found}"


def wait_until_usable(cluster: WatchedCluster, names: tuple[str, ...]) -> None:
    """Wait until these topics are in sync on all brokers and the old one has an id; then create a new topic."""
    all_brokers = sorted(cluster.brokers.ports().values())
    made = cluster.ask(create, names[0], [all_brokers] * 2)
    assert made == DONE

    def are_healthy() -> bool:
        return all(
            name in views
            and views[name].partitions
            and not any(
                each.is_under_replicated or each.is_offline for each in views[name].partitions
            )
            for views in map(topics_of, map(cluster.brokers.address, all_brokers))
            for name in names
        )

    eventually(are_healthy, lambda: f"{names} are in sync: {cluster.all_views()}", DEADLINE_S)


def check_old_topic(cluster: WatchedCluster, name: str, partitions: int) -> None:
    """Check that the topic got an id and its missing states."""
    found = znodes.decode_topic(name, cluster.observer.get(znodes.topic_path(name)) or b"")
    assert found.topic_id is not None, f"{name} has no id"
    assert sorted(cluster.observer.states(name, partitions)) == list(range(partitions))


def test_bad_znodes_are_reported_once_and_ignored(
    cluster: WatchedCluster,
) -> None:
    controller, epoch = cluster.controller(), cluster.observer.controller_epoch()
    plant(cluster, OLD)
    plant(cluster, (UNMARKED,))
    for number, each in enumerate(BAD.values()):
        plant(cluster, each.nodes)
        if number % 5 == 0:
            wait_until_usable(cluster, (f"between-{number}",))
    wait_until_usable(cluster, ("good", "old"))
    check_old_topic(cluster, "old", 2)
    assert cluster.observer.get(UNMARKED[0]) is None, "a marker for no topic stays"
    assert (cluster.controller(), cluster.observer.controller_epoch()) == (controller, epoch)
    check_warnings(cluster, BAD)


@brokers_fail
def test_new_controller_takes_over_despite_bad_znodes(cluster: WatchedCluster) -> None:
    all_brokers = sorted(cluster.brokers.ports().values())
    epoch = cluster.observer.controller_epoch()
    cluster.brokers.kill(all_brokers)
    eventually(
        lambda: not cluster.observer.broker_epochs(), lambda: "all failures detected", DEADLINE_S
    )
    plant(cluster, OLD)
    plant(cluster, HALF)
    plant(cluster, (UNMARKED,))
    found = BAD | BAD_STATES
    for each in found.values():
        plant(cluster, each.nodes)
    cluster.brokers.restart(all_brokers)
    wait_until_usable(cluster, ("good", "old", "half"))
    check_old_topic(cluster, "old", 2)
    check_old_topic(cluster, "half", 3)
    assert cluster.observer.get(UNMARKED[0]) is None, "a marker for no topic stays"
    assert cluster.observer.controller_epoch() == epoch + 1
    check_warnings(cluster, found)


@brokers_fail
def test_invalid_controller_epoch_blocks_elections_until_fixed(
    cluster: WatchedCluster,
) -> None:
    epoch = cluster.observer.controller_epoch()
    first = cluster.controller()
    overwrite(cluster, znodes.CONTROLLER_EPOCH, b"seven")
    cluster.brokers.kill([first])
    survivors = sorted(cluster.brokers.alive())
    wait_for_warning(cluster, znodes.CONTROLLER_EPOCH)
    assert cluster.observer.controller() not in survivors
    overwrite(cluster, znodes.CONTROLLER_EPOCH, b"%d" % (epoch + 10))
    eventually(
        lambda: cluster.observer.controller() in survivors, lambda: "a controller", DEADLINE_S
    )
    assert cluster.observer.controller_epoch() == epoch + 11
    cluster.brokers.restart([first])
    wait_until_usable(cluster, ("after",))


@brokers_fail
def test_controller_failover_works_with_bad_znodes(cluster: WatchedCluster) -> None:
    plant(cluster, OLD)
    for each in BAD.values():
        plant(cluster, each.nodes)
    wait_until_usable(cluster, ("before", "old"))
    first = cluster.controller()
    cluster.brokers.kill([first])
    survivors = sorted(cluster.brokers.alive())
    eventually(
        lambda: cluster.observer.controller() in survivors, lambda: "a controller", DEADLINE_S
    )
    cluster.wait_until_led("before", 2, survivors)
    cluster.brokers.restart([first])
    wait_until_usable(cluster, ("after", "before", "old"))


def test_fixed_topic_znode_is_processed(cluster: WatchedCluster) -> None:
    path = znodes.topic_path("mended")
    plant(cluster, ((path, b"{"),))
    wait_for_warning(cluster, path)
    overwrite(cluster, path, ASSIGNED % b"AAAAAAAAAAAAAAAAAAAABg")
    wait_until_usable(cluster, ("good", "mended"))


@brokers_fail
def test_bad_state_znode_affects_only_its_partition(cluster: WatchedCluster) -> None:
    controller = cluster.controller()
    leader, other = sorted(cluster.brokers.alive() - {controller})
    for name in ("spoiled", "sound"):
        made = create(cluster.brokers.address(controller), name, [[leader, other, controller]])
        assert made == DONE
    path = znodes.state_path(TopicPartition("spoiled", 0))
    good = cluster.observer.get(path)
    assert good is not None
    overwrite(cluster, path, b"{")
    cluster.brokers.kill([leader])
    cluster.wait_until_led("sound", 1, sorted([controller, other]))
    wait_for_warning(cluster, path)
    overwrite(cluster, path, good)
    cluster.brokers.restart([leader])
    wait_until_usable(cluster, ("good", "spoiled", "sound"))
    assert cluster.controller() == controller


def test_unreadable_controller_znode_is_reported_and_ignored(
    cluster: WatchedCluster,
) -> None:
    controller = cluster.controller()
    overwrite(cluster, znodes.CONTROLLER, b"{")
    wait_for_warning(cluster, znodes.CONTROLLER)
    made = create(cluster.brokers.address(controller), "meanwhile", [[1, 2, 3]])
    assert made == DONE
    cluster.observer.run(cluster.observer.session.delete(znodes.CONTROLLER))
    wait_until_usable(cluster, ("good", "meanwhile"))


def test_deleted_controller_znode_triggers_election(cluster: WatchedCluster) -> None:
    """Repeatedly, and possibly by itself with a new epoch."""
    for epoch in (2, 3, 4):
        cluster.observer.run(cluster.observer.session.delete(znodes.CONTROLLER))
        wait_until_usable(cluster, (f"good-{epoch}",))
        assert cluster.observer.controller_epoch() == epoch
    cluster.check_requests()
    assert not cluster.invariants.broken
