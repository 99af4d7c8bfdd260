"""What is interrupted: a creation, an expansion, a deletion. How each is begun, and what it has come to.

prepare      what stands before
wish         what a client tells the controller
survive      what must be true among those who live
finish       what must be true when all live, and nothing is left to do
recover      the same when the dead are back; what came to nothing is wished again
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from barnabas.errors import ErrorCode
from barnabas.metadata import znodes
from barnabas.model import BrokerId, TopicPartition
from tests.lifecycle.client import create, delete, eventually, expand
from tests.lifecycle.scenarios import Does, Progress, Role, Scenario, leader_epochs
from tests.lifecycle.watched import DEADLINE_S, DONE, Assignment, Watched

TOO_FEW_BROKERS = ErrorCode.INVALID_REPLICATION_FACTOR.name
DOES_NOT_GROW = ErrorCode.INVALID_TOPIC_EXCEPTION.name
NAME_IS_TAKEN = ErrorCode.TOPIC_ALREADY_EXISTS.name


@dataclass(slots=True, kw_only=True)
class Run:
    """One topic, and who has to do with it."""

    scenario: Scenario
    topic: str
    roles: dict[Role, BrokerId]
    assignment: Assignment
    """As it is to be in the end."""
    reached: Progress
    dead: list[BrokerId] = field(default_factory=list)
    """Those who have died, in their order."""
    returned: dict[BrokerId, int] = field(default_factory=dict)
    """Those of them who are back, by the epoch they registered with."""
    survivors: list[BrokerId] = field(default_factory=list)
    successor: Role = Role.CONTROLLER
    """Who died last."""

    @property
    def is_lost(self) -> bool:
        """Whoever had the wish died before it stood in the registry."""
        return self.reached is Progress.NOTHING and Role.CONTROLLER in self.scenario.victims


class Operation(Protocol):
    def prepare(self, cluster: Watched, run: Run) -> None: ...

    def wish(self, address: tuple[str, int], run: Run) -> str: ...

    def survive(self, cluster: Watched, run: Run) -> str:
        """What was found, for the table."""
        ...

    def finish(self, cluster: Watched, run: Run) -> None: ...

    def recover(self, cluster: Watched, run: Run) -> None: ...

    def allowed_epochs(self, cluster: Watched, run: Run) -> list[set[int]]:
        """To be asked when the dead are missed, and before they are back."""
        ...


class Creation:
    def prepare(self, cluster: Watched, run: Run) -> None:
        pass

    def wish(self, address: tuple[str, int], run: Run) -> str:
        return create(address, run.topic, run.assignment)

    def survive(self, cluster: Watched, run: Run) -> str:
        found = "found"
        if cluster.topic_znode(run.topic) is None:
            found = "created again"
            assert run.reached is Progress.NOTHING, "the topic is lost"
            living = set(run.survivors)
            run.assignment = [[each for each in held if each in living] for held in run.assignment]
            again = cluster.ask(create, run.topic, run.assignment)
            assert again == DONE, f"cannot be created again: {again}"
        else:
            assert not run.is_lost
        cluster.wait_until_led(run.topic, len(run.assignment), run.survivors)
        return found

    def finish(self, cluster: Watched, run: Run) -> None:
        cluster.wait_until_healthy(run.topic, run.assignment)
        check_directories(cluster, run)

    def recover(self, cluster: Watched, run: Run) -> None:
        self.finish(cluster, run)

    def allowed_epochs(self, cluster: Watched, run: Run) -> list[set[int]]:
        return [
            epochs_of_new(cluster, run, index, replicas)
            for index, replicas in enumerate(run.scenario.assignment)
        ]


class Expansion:
    """From one partition to as many as the scenario has."""

    def prepare(self, cluster: Watched, run: Run) -> None:
        made = cluster.ask(create, run.topic, run.assignment[:1])
        assert made == DONE, made
        cluster.wait_until_healthy(run.topic, run.assignment[:1])

    def wish(self, address: tuple[str, int], run: Run) -> str:
        return expand(address, run.topic, len(run.assignment), run.assignment[1:])

    def survive(self, cluster: Watched, run: Run) -> str:
        if self.has_grown(cluster, run):
            assert not run.is_lost
            cluster.wait_until_led(run.topic, len(run.assignment), run.survivors)
            return "found"
        assert run.is_lost, "the new partitions are lost"
        cluster.wait_until_led(run.topic, 1, run.survivors)
        again = cluster.ask(expand, run.topic, len(run.assignment))
        assert again == TOO_FEW_BROKERS, again
        return "grown again"

    def finish(self, cluster: Watched, run: Run) -> None:
        cluster.wait_until_healthy(run.topic, run.assignment)
        check_directories(cluster, run)

    def recover(self, cluster: Watched, run: Run) -> None:
        if not self.has_grown(cluster, run):
            again = cluster.ask(self.wish, run)
            assert again == DONE, f"cannot grow again: {again}"
        self.finish(cluster, run)

    def allowed_epochs(self, cluster: Watched, run: Run) -> list[set[int]]:
        first, *added = run.scenario.assignment
        known = leader_epochs(run.scenario, first, Progress.STATES, created_without_the_dead=False)
        if run.is_lost:
            return [known, *({0} for _ in added)]
        return [
            known,
            *(epochs_of_new(cluster, run, index, held) for index, held in enumerate(added, 1)),
        ]

    def has_grown(self, cluster: Watched, run: Run) -> bool:
        found = cluster.topic_znode(run.topic)
        assert found is not None, "the topic is lost"
        assert len(found.partitions) in (1, len(run.assignment))
        return len(found.partitions) > 1


class Deletion:
    """And the name is taken anew at once, by a topic that has nothing of the one before."""

    def prepare(self, cluster: Watched, run: Run) -> None:
        made = cluster.ask(create, run.topic, run.assignment)
        assert made == DONE, made
        cluster.wait_until_healthy(run.topic, run.assignment)

    def wish(self, address: tuple[str, int], run: Run) -> str:
        return delete(address, run.topic)

    def survive(self, cluster: Watched, run: Run) -> str:
        story = "found"
        if cluster.is_marked(run.topic):
            self.check_that_it_is_nobodys(cluster, run)
        elif cluster.topic_znode(run.topic) is not None:
            story = "deleted again"
            assert run.is_lost, "the marker is lost"
            again = cluster.ask(delete, run.topic)
            assert again == DONE, f"cannot be deleted again: {again}"
        else:
            story = "gone"
            assert not run.is_lost
        cluster.wait_until_hidden(run.topic, run.survivors)
        return story

    def check_that_it_is_nobodys(self, cluster: Watched, run: Run) -> None:
        """Invariant 8. What is asked for is only checked: the deletion may come to its end at any moment."""
        grown = cluster.ask(expand, run.topic, len(run.assignment) + 1, validate_only=True)
        made = cluster.ask(create, run.topic, [run.survivors], validate_only=True)
        if cluster.is_marked(run.topic):
            assert grown == DOES_NOT_GROW, f"it could grow: {grown}"
            assert made == NAME_IS_TAKEN, f"its name was free: {made}"

    def finish(self, cluster: Watched, run: Run) -> None:
        cluster.wait_until_gone(run.topic)
        left = cluster.directories_of(run.topic, len(run.assignment))
        assert not any(left.values()), f"directories of {run.topic} are left: {left}"
        cluster.wait_until_hidden(run.topic, sorted(cluster.brokers.alive()))

    def recover(self, cluster: Watched, run: Run) -> None:
        self.finish(cluster, run)
        again: list[str] = []

        def is_made() -> bool:
            again.append(cluster.ask(create, run.topic, run.assignment))
            return again[-1] == DONE

        eventually(is_made, lambda: f"the name is free: {again}", DEADLINE_S)
        cluster.wait_until_healthy(run.topic, run.assignment)
        check_directories(cluster, run)

    def allowed_epochs(self, cluster: Watched, run: Run) -> list[set[int]]:
        return [{0} for _ in run.assignment]


OPERATIONS: dict[Does, Operation] = {
    Does.CREATE: Creation(),
    Does.EXPAND: Expansion(),
    Does.DELETE: Deletion(),
}


def epochs_of_new(cluster: Watched, run: Run, index: int, replicas: tuple[Role, ...]) -> set[int]:
    """Of a partition whose first state may have been written before or after the dead were missed.

    Who wrote it after may still not have heard of it. The dead are in that state then, and another had to follow."""
    missed = cluster.observer.stat(znodes.BROKER_IDS).pzxid
    state = cluster.observer.stat(znodes.state_path(TopicPartition(run.topic, index)))
    return leader_epochs(
        run.scenario,
        replicas,
        run.reached,
        created_without_the_dead=missed < state.czxid and state.version == 0,
        successor=run.successor,
    )


def check_directories(cluster: Watched, run: Run) -> None:
    found = cluster.directories_of(run.topic, len(run.assignment))
    for index, replicas in enumerate(run.assignment):
        assert set(replicas) <= set(found[index]), f"directories of {run.topic}: {found}"
