"""The operations that crashes interrupt: topic creation, expansion, deletion, reassignment, election,
change of settings and controlled shutdown.

prepare      set up the initial state
request      send the client's request to the controller
survive      check the state among the survivors
finish       check the final state when no broker crashed
recover      check the final state after the restart; repeats the request if it was lost
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from barnabas.controller.assignment import is_being_reassigned, target_replicas
from barnabas.errors import ErrorCode
from barnabas.metadata import znodes
from barnabas.model import BrokerId, TopicPartition
from tests.lifecycle.client import (
    create,
    delete,
    elect_preferred,
    eventually,
    expand,
    reassign,
    retention_of,
    set_retention,
    shut_down,
)
from tests.lifecycle.scenarios import OperationKind, Progress, Role, Scenario, leader_epochs
from tests.lifecycle.watched import DEADLINE_S, DONE, Assignment, WatchedCluster

TOO_FEW_BROKERS = ErrorCode.INVALID_REPLICATION_FACTOR.name
DOES_NOT_GROW = ErrorCode.INVALID_TOPIC_EXCEPTION.name
NAME_IS_TAKEN = ErrorCode.TOPIC_ALREADY_EXISTS.name
NOT_NEEDED = ErrorCode.ELECTION_NOT_NEEDED.name
RETENTION_MS = 86_400_001
UNKNOWN_BROKER = BrokerId(9)


@dataclass(slots=True, kw_only=True)
class Run:
    """One topic and the brokers involved."""

    scenario: Scenario
    topic: str
    roles: dict[Role, BrokerId]
    assignment: Assignment
    """The final assignment."""
    reached: Progress
    dead: list[BrokerId] = field(default_factory=list)
    """Crashed brokers, in order."""
    returned: dict[BrokerId, int] = field(default_factory=dict)
    """Restarted brokers, with the epoch of their new registration."""
    survivors: list[BrokerId] = field(default_factory=list)
    broker_epochs: dict[BrokerId, int] = field(default_factory=dict)
    """Epochs of the registrations before the request."""
    successor: Role = Role.CONTROLLER
    """The role of the broker that crashed last."""

    @property
    def is_lost(self) -> bool:
        """Whether the brokers crashed before the request was written to the registry."""
        return self.reached is Progress.NOTHING and Role.CONTROLLER in self.scenario.victims


class Operation(Protocol):
    undisturbed_epochs: frozenset[int]
    """Leader epochs after a run without a crash."""

    def prepare(self, cluster: WatchedCluster, run: Run) -> None: ...

    def request(self, address: tuple[str, int], run: Run) -> str: ...

    def survive(self, cluster: WatchedCluster, run: Run) -> str:
        """Returns the state found, for the table."""
        ...

    def finish(self, cluster: WatchedCluster, run: Run) -> None: ...

    def recover(self, cluster: WatchedCluster, run: Run) -> None: ...

    def allowed_epochs(self, cluster: WatchedCluster, run: Run) -> list[set[int]]:
        """Allowed leader epochs. Call after the failures are detected and before the restart."""
        ...


class Creation:
    undisturbed_epochs = frozenset({0})

    def prepare(self, cluster: WatchedCluster, run: Run) -> None:
        pass

    def request(self, address: tuple[str, int], run: Run) -> str:
        return create(address, run.topic, run.assignment)

    def survive(self, cluster: WatchedCluster, run: Run) -> str:
        found = "found"
        if cluster.topic_znode(run.topic) is None:
            found = "created again"
            assert run.reached is Progress.NOTHING, "the topic is lost"
            living = set(run.survivors)
            run.assignment = [[each for each in held if each in living] for held in run.assignment]
            again = cluster.ask(create, run.topic, run.assignment)
            assert again == DONE, f"cannot create it again: {again}"
        else:
            assert not run.is_lost
        cluster.wait_until_led(run.topic, len(run.assignment), run.survivors)
        return found

    def finish(self, cluster: WatchedCluster, run: Run) -> None:
        cluster.wait_until_healthy(run.topic, run.assignment)
        check_directories(cluster, run)

    def recover(self, cluster: WatchedCluster, run: Run) -> None:
        self.finish(cluster, run)

    def allowed_epochs(self, cluster: WatchedCluster, run: Run) -> list[set[int]]:
        return [
            epochs_of_new(cluster, run, index, replicas)
            for index, replicas in enumerate(run.scenario.assignment)
        ]


class Expansion:
    """Expansion from one partition to the scenario's number."""

    undisturbed_epochs = frozenset({0})

    def prepare(self, cluster: WatchedCluster, run: Run) -> None:
        create_topic(cluster, run, run.assignment[:1])

    def request(self, address: tuple[str, int], run: Run) -> str:
        return expand(address, run.topic, len(run.assignment), run.assignment[1:])

    def survive(self, cluster: WatchedCluster, run: Run) -> str:
        if self.has_grown(cluster, run):
            assert not run.is_lost
            cluster.wait_until_led(run.topic, len(run.assignment), run.survivors)
            return "found"
        assert run.is_lost, "the new partitions are lost"
        cluster.wait_until_led(run.topic, 1, run.survivors)
        again = cluster.ask(expand, run.topic, len(run.assignment))
        assert again == TOO_FEW_BROKERS, again
        return "expanded again"

    def finish(self, cluster: WatchedCluster, run: Run) -> None:
        cluster.wait_until_healthy(run.topic, run.assignment)
        check_directories(cluster, run)

    def recover(self, cluster: WatchedCluster, run: Run) -> None:
        if not self.has_grown(cluster, run):
            again = cluster.ask(self.request, run)
            assert again == DONE, f"cannot expand it again: {again}"
        self.finish(cluster, run)

    def allowed_epochs(self, cluster: WatchedCluster, run: Run) -> list[set[int]]:
        first, *added = run.scenario.assignment
        known = leader_epochs(run.scenario, first, Progress.STATES, created_after_detection=False)
        if run.is_lost:
            return [known, *({0} for _ in added)]
        return [
            known,
            *(epochs_of_new(cluster, run, index, held) for index, held in enumerate(added, 1)),
        ]

    def has_grown(self, cluster: WatchedCluster, run: Run) -> bool:
        found = cluster.topic_znode(run.topic)
        assert found is not None, "the topic is lost"
        assert len(found.partitions) in (1, len(run.assignment))
        return len(found.partitions) > 1


class Deletion:
    """Deletion. The name is reused at once by a new topic that shares nothing with the old one."""

    undisturbed_epochs = frozenset({0})

    def prepare(self, cluster: WatchedCluster, run: Run) -> None:
        create_topic(cluster, run, run.assignment)

    def request(self, address: tuple[str, int], run: Run) -> str:
        return delete(address, run.topic)

    def survive(self, cluster: WatchedCluster, run: Run) -> str:
        story = "found"
        if cluster.is_marked(run.topic):
            self.check_hidden(cluster, run)
        elif cluster.topic_znode(run.topic) is not None:
            story = "deleted again"
            assert run.is_lost, "the marker is lost"
            again = cluster.ask(delete, run.topic)
            assert again == DONE, f"cannot delete it again: {again}"
        else:
            story = "gone"
            assert not run.is_lost
        cluster.wait_until_hidden(run.topic, run.survivors)
        return story

    def check_hidden(self, cluster: WatchedCluster, run: Run) -> None:
        """Check invariant 8 with validate-only requests: the deletion may finish at any moment."""
        grown = cluster.ask(expand, run.topic, len(run.assignment) + 1, validate_only=True)
        made = cluster.ask(create, run.topic, [run.survivors], validate_only=True)
        if cluster.is_marked(run.topic):
            assert grown == DOES_NOT_GROW, f"it could be expanded: {grown}"
            assert made == NAME_IS_TAKEN, f"its name was free: {made}"

    def finish(self, cluster: WatchedCluster, run: Run) -> None:
        cluster.wait_until_gone(run.topic)
        left = cluster.directories_of(run.topic, len(run.assignment))
        assert not any(left.values()), f"directories of {run.topic} are left: {left}"
        cluster.wait_until_hidden(run.topic, sorted(cluster.brokers.alive()))

    def recover(self, cluster: WatchedCluster, run: Run) -> None:
        self.finish(cluster, run)
        again: list[str] = []

        def is_made() -> bool:
            again.append(cluster.ask(create, run.topic, run.assignment))
            return again[-1] == DONE

        eventually(is_made, lambda: f"the name is free: {again}", DEADLINE_S)
        cluster.wait_until_healthy(run.topic, run.assignment)
        check_directories(cluster, run)

    def allowed_epochs(self, cluster: WatchedCluster, run: Run) -> list[set[int]]:
        return [{0} for _ in run.assignment]


class Reassignment:
    """Reassignment from the origin. One replica is added, so that every run has the same writes and requests."""

    undisturbed_epochs = frozenset({3})

    def prepare(self, cluster: WatchedCluster, run: Run) -> None:
        create_origin(cluster, run)

    def request(self, address: tuple[str, int], run: Run) -> str:
        return reassign(address, run.topic, run.assignment)

    def survive(self, cluster: WatchedCluster, run: Run) -> str:
        found = cluster.topic_znode(run.topic)
        assert found is not None, "the topic is lost"
        cluster.wait_until_led(run.topic, len(run.assignment), run.survivors)
        if not self.is_requested(cluster, run):
            assert run.is_lost, "the reassignment is lost"
            return "reassigned again"
        return "moving" if is_being_reassigned(found.partitions[0]) else "moved"

    def is_requested(self, cluster: WatchedCluster, run: Run) -> bool:
        found = cluster.topic_znode(run.topic)
        assert found is not None
        target = [list(target_replicas(each)) for _, each in sorted(found.partitions.items())]
        return target == run.assignment

    def finish(self, cluster: WatchedCluster, run: Run) -> None:
        cluster.wait_until_moved(run.topic, run.assignment)
        cluster.wait_until_healthy(run.topic, run.assignment)
        wanted = {index: sorted(replicas) for index, replicas in enumerate(run.assignment)}
        eventually(
            lambda: cluster.directories_of(run.topic, len(run.assignment)) == wanted,
            lambda: "removed replicas are deleted",
            DEADLINE_S,
        )

    def recover(self, cluster: WatchedCluster, run: Run) -> None:
        if not self.is_requested(cluster, run):
            again = cluster.ask(self.request, run)
            assert again == DONE, f"cannot reassign it again: {again}"
        self.finish(cluster, run)

    def allowed_epochs(self, cluster: WatchedCluster, run: Run) -> list[set[int]]:
        """Any: it depends on how far the reassignment had come when the failure was detected."""
        return [set(range(1, 20)) for _ in run.assignment]


class Cancellation(Reassignment):
    """Cancellation of a reassignment that waits for an unknown broker. A new replica leads, and is dropped."""

    undisturbed_epochs = frozenset({4})

    def prepare(self, cluster: WatchedCluster, run: Run) -> None:
        create_origin(cluster, run)
        target = [run.roles[Role.OTHER], UNKNOWN_BROKER]
        request = znodes.encode_reassignment({TopicPartition(run.topic, 0): target})
        session = cluster.observer.session
        cluster.observer.run(session.create(znodes.REASSIGN_PARTITIONS, request))
        in_sync = {*run.assignment[0], target[0]}
        eventually(
            lambda: set(cluster.observer.states(run.topic, 1)[0].isr) == in_sync,
            lambda: "the new replica is in sync",
            DEADLINE_S,
        )
        assert cluster.ask(elect_preferred, run.topic, 1) == DONE
        wait_until_sent(cluster, run)

    def request(self, address: tuple[str, int], run: Run) -> str:
        return reassign(address, run.topic, [None])


class PreferredElection:
    """Election of the preferred leader, after the order of the replicas has changed."""

    undisturbed_epochs = frozenset({2})

    def prepare(self, cluster: WatchedCluster, run: Run) -> None:
        create_origin(cluster, run)
        ordered = cluster.ask(reassign, run.topic, run.assignment)
        assert ordered == DONE, ordered
        cluster.wait_until_healthy(run.topic, run.assignment)
        wait_until_sent(cluster, run)

    def request(self, address: tuple[str, int], run: Run) -> str:
        return elect_preferred(address, run.topic, len(run.assignment))

    def survive(self, cluster: WatchedCluster, run: Run) -> str:
        cluster.wait_until_led(run.topic, len(run.assignment), run.survivors)
        return "elected" if self.is_preferred(cluster, run) else "not elected"

    def is_preferred(self, cluster: WatchedCluster, run: Run) -> bool:
        states = cluster.observer.states(run.topic, len(run.assignment))
        return all(states[n].leader == held[0] for n, held in enumerate(run.assignment))

    def finish(self, cluster: WatchedCluster, run: Run) -> None:
        cluster.wait_until_healthy(run.topic, run.assignment)
        eventually(
            lambda: self.is_preferred(cluster, run),
            lambda: "the preferred leaders lead",
            DEADLINE_S,
        )

    def recover(self, cluster: WatchedCluster, run: Run) -> None:
        cluster.wait_until_healthy(run.topic, run.assignment)
        again = cluster.ask(self.request, run)
        assert again in (DONE, NOT_NEEDED), again
        self.finish(cluster, run)

    def allowed_epochs(self, cluster: WatchedCluster, run: Run) -> list[set[int]]:
        return [set(range(1, 20)) for _ in run.assignment]


class Configuration:
    """Change of a setting. Settings and notification are written together."""

    undisturbed_epochs = frozenset({0})

    def prepare(self, cluster: WatchedCluster, run: Run) -> None:
        create_topic(cluster, run, run.assignment)

    def request(self, address: tuple[str, int], run: Run) -> str:
        return set_retention(address, run.topic, RETENTION_MS)

    def survive(self, cluster: WatchedCluster, run: Run) -> str:
        cluster.wait_until_led(run.topic, len(run.assignment), run.survivors)
        if self.is_changed(cluster, run):
            self.wait_for_brokers(cluster, run)
            return "changed"
        return "not changed"

    def is_changed(self, cluster: WatchedCluster, run: Run) -> bool:
        path = znodes.topic_config_path(run.topic)
        data = cluster.observer.get(path)
        assert data is not None, "the settings are lost"
        return znodes.decode_config(path, data) == {"retention.ms": str(RETENTION_MS)}

    def wait_for_brokers(self, cluster: WatchedCluster, run: Run) -> None:
        def reported() -> set[str | None]:
            alive = sorted(cluster.brokers.alive())
            return {retention_of(cluster.brokers.address(each), run.topic) for each in alive}

        eventually(
            lambda: reported() == {str(RETENTION_MS)},
            lambda: f"all brokers apply the change: {reported()}",
            DEADLINE_S,
        )

    def finish(self, cluster: WatchedCluster, run: Run) -> None:
        assert self.is_changed(cluster, run)
        self.wait_for_brokers(cluster, run)

    def recover(self, cluster: WatchedCluster, run: Run) -> None:
        cluster.wait_until_healthy(run.topic, run.assignment)
        if not self.is_changed(cluster, run):
            again = cluster.ask(self.request, run)
            assert again == DONE, f"cannot change it again: {again}"
        self.finish(cluster, run)

    def allowed_epochs(self, cluster: WatchedCluster, run: Run) -> list[set[int]]:
        return [set(range(20)) for _ in run.assignment]


class ControlledShutdown:
    """Controlled shutdown of the first replica. Its broker stops when the other brokers lead."""

    undisturbed_epochs = frozenset({1})

    def prepare(self, cluster: WatchedCluster, run: Run) -> None:
        create_topic(cluster, run, run.assignment)
        run.broker_epochs = cluster.observer.broker_epochs()

    def request(self, address: tuple[str, int], run: Run) -> str:
        leaving = run.assignment[0][0]
        return shut_down(address, leaving, run.broker_epochs[leaving])

    def survive(self, cluster: WatchedCluster, run: Run) -> str:
        cluster.wait_until_led(run.topic, len(run.assignment), run.survivors)
        return "left" if self.has_left(cluster, run) else "still leads"

    def has_left(self, cluster: WatchedCluster, run: Run) -> bool:
        states = cluster.observer.states(run.topic, len(run.assignment))
        return all(held[0] not in states[n].isr for n, held in enumerate(run.assignment))

    def finish(self, cluster: WatchedCluster, run: Run) -> None:
        assert self.has_left(cluster, run)

    def recover(self, cluster: WatchedCluster, run: Run) -> None:
        """A new controller does not know of the shutdown: the broker requests it again, then it stops and starts."""
        leaving = run.assignment[0][0]
        again = cluster.ask(self.request, run)
        assert again == DONE, f"cannot shut down again: {again}"
        eventually(lambda: self.has_left(cluster, run), lambda: "the broker has left", DEADLINE_S)
        cluster.brokers.kill([leaving])
        cluster.brokers.restart([leaving])
        run.returned[leaving] = cluster.observer.broker_epochs().get(leaving, -1)
        cluster.wait_until_healthy(run.topic, run.assignment)

    def allowed_epochs(self, cluster: WatchedCluster, run: Run) -> list[set[int]]:
        return [set(range(1, 20)) for _ in run.assignment]


OPERATIONS: dict[OperationKind, Operation] = {
    OperationKind.CREATE: Creation(),
    OperationKind.EXPAND: Expansion(),
    OperationKind.DELETE: Deletion(),
    OperationKind.REASSIGN: Reassignment(),
    OperationKind.CANCEL: Cancellation(),
    OperationKind.ELECT: PreferredElection(),
    OperationKind.CONFIGURE: Configuration(),
    OperationKind.SHUT_DOWN: ControlledShutdown(),
}


def epochs_of_new(
    cluster: WatchedCluster, run: Run, index: int, replicas: tuple[Role, ...]
) -> set[int]:
    """The leader epochs of a partition whose first state was written before or after the failures were detected.

    The writer may not know of the failure in either case. Then the state includes the failed brokers, and another
    state follows."""
    missed = cluster.observer.stat(znodes.BROKER_IDS).pzxid
    state = cluster.observer.stat(znodes.state_path(TopicPartition(run.topic, index)))
    return leader_epochs(
        run.scenario,
        replicas,
        run.reached,
        created_after_detection=missed < state.czxid and state.version == 0,
        successor=run.successor,
    )


def create_topic(cluster: WatchedCluster, run: Run, assignment: Assignment) -> None:
    created = cluster.ask(create, run.topic, assignment)
    assert created == DONE, created
    cluster.wait_until_healthy(run.topic, assignment)


def create_origin(cluster: WatchedCluster, run: Run) -> None:
    origin = [[run.roles[role] for role in replicas] for replicas in run.scenario.origin]
    create_topic(cluster, run, origin)


def wait_until_sent(cluster: WatchedCluster, run: Run) -> None:
    """Wait until the requests of earlier changes are sent: all brokers know a later topic."""
    later = f"later-{run.topic}"
    assert cluster.ask(create, later, run.assignment) == DONE
    cluster.wait_until_led(later, len(run.assignment), sorted(cluster.brokers.alive()))


def check_directories(cluster: WatchedCluster, run: Run) -> None:
    found = cluster.directories_of(run.topic, len(run.assignment))
    for index, replicas in enumerate(run.assignment):
        assert set(replicas) <= set(found[index]), f"directories of {run.topic}: {found}"
