"""One crash: a creation is begun, somebody dies in the middle of it, and everything must be well again.

Well means, among those who live: the topic has a leader for every partition in everybody's metadata; or, if its znode
was never written, there is no trace of it and it can be created. When the dead are back: all replicas are in sync, and
what brokers tell clients is what the registry says. And a dead controller's requests, sent once more, move nobody.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from barnabas.client.view import TopicView
from barnabas.errors import ErrorCode
from barnabas.metadata import znodes
from barnabas.model import BrokerId, TopicPartition
from tests.lifecycle.client import create, eventually, topics_of
from tests.lifecycle.clusters import Brokers
from tests.lifecycle.invariants import Invariants
from tests.lifecycle.observer import Observer
from tests.lifecycle.scenarios import TOPIC_WRITTEN, Progress, Role, Scenario, leader_epochs
from tests.lifecycle.trap import CrashPoint, Kind
from tests.lifecycle.wire import Exchange, Listener, error_of
from tests.raw_connection import RawConnection

DEADLINE_S = 30.0
CREATED = ErrorCode.NONE.name
VERSION_AT = slice(6, 8)
EARLIER = "earlier"

Assignment = list[list[BrokerId]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    registry: str
    scenario: str
    point: str
    client: str = ""
    topic: str = ""
    leaders_s: float = 0.0
    whole_s: float = 0.0
    epochs: str = ""
    replayed: str = ""
    result: str = "ok"


class Watched:
    """Brokers, and who watches over them."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.invariants = Invariants()
        self.listener = Listener()
        brokers.start()
        try:
            self.observer = Observer(brokers.observed(), self.invariants)
            self.observer.begin()
        except BaseException:
            brokers.stop()
            raise

    def stop(self) -> None:
        try:
            self.observer.end()
        finally:
            self.brokers.stop()

    # ---- waiting

    def wait_until_whole(self, topic: str, assignment: Assignment) -> None:
        """All replicas of this topic and of all others are in sync, and all brokers say so."""

        def is_whole(views: dict[str, TopicView]) -> bool:
            return (
                topic in views
                and [list(each.replicas) for each in views[topic].partitions] == assignment
                and not any(
                    each.is_offline or each.is_under_replicated
                    for view in views.values()
                    for each in view.partitions
                )
            )

        eventually(
            lambda: all(is_whole(views) for views in self.everything_told()),
            lambda: f"all replicas in sync: {self.everything_told()}",
            DEADLINE_S,
        )

    def wait_until_led(self, topic: str, partitions: int, survivors: list[BrokerId]) -> None:
        """By somebody alive, with nobody dead in the ISR."""

        def is_led(view: TopicView | None) -> bool:
            return (
                view is not None
                and len(view.partitions) == partitions
                and all(
                    each.leader in survivors and set(each.isr) <= set(survivors)
                    for each in view.partitions
                )
            )

        eventually(
            lambda: all(is_led(each) for each in self.views(topic, survivors)),
            lambda: f"a leader for every partition: {self.views(topic, survivors)}",
            DEADLINE_S,
        )

    def wait_until_missed(self, survivors: list[BrokerId]) -> None:
        """The dead are gone from the registry, and somebody alive is in charge."""
        eventually(
            lambda: (
                sorted(self.observer.broker_epochs()) == survivors
                and self.observer.controller() in survivors
            ),
            lambda: (
                f"only {survivors} are registered, and one of them is in charge: "
                f"{self.observer.broker_epochs()}, {self.observer.controller()}"
            ),
            DEADLINE_S,
        )

    def views(self, topic: str, brokers: list[BrokerId]) -> list[TopicView | None]:
        return [topics_of(self.brokers.address(each), [topic]).get(topic) for each in brokers]

    def controller(self) -> BrokerId:
        eventually(lambda: self.observer.controller() is not None, lambda: "a controller", 30.0)
        found = self.observer.controller()
        assert found is not None
        return found

    # ---- one run

    def undisturbed(self, scenario: Scenario, topic: str) -> list[tuple[Kind, str]]:
        """A creation in which nobody dies, or a takeover in which nobody else does: what went out."""
        roles = self.roles()
        controller = roles[Role.CONTROLLER]
        assignment = assigned(scenario, roles)
        if scenario.in_takeover:
            self.let_die(scenario, None, topic, roles)
            survivors = sorted(self.brokers.alive())
            self.wait_until_missed(survivors)
            self.wait_until_led(topic, len(assignment), survivors)
            labels = self.brokers.labels(self.controller())
            self.brokers.restart([controller])
        else:
            self.brokers.arm(controller, None, [])
            answer = create(self.brokers.address(controller), topic, assignment)
            assert answer == CREATED, answer
            self.wait_until_whole(topic, assignment)
            labels = self.brokers.labels(controller)
        self.wait_until_whole(topic, assignment)
        states = self.observer.states(topic, len(assignment))
        assert [states[index].leader_epoch for index in range(len(assignment))] == [0] * len(states)
        return labels

    def let_die(
        self,
        scenario: Scenario,
        point: CrashPoint | None,
        topic: str,
        roles: dict[Role, BrokerId],
    ) -> tuple[str, list[BrokerId]]:
        """Begin a creation and see it interrupted: what the client heard, and who is dead."""
        controller = roles[Role.CONTROLLER]
        heirs = [each for each in roles.values() if each != controller]
        victims = [roles[role] for role in scenario.victims]
        if scenario.in_takeover:
            self.have_an_earlier_topic(controller, assigned(scenario, roles))
            for heir in heirs:
                self.brokers.arm(heir, point, [heir], from_election=True)
        deadly = TOPIC_WRITTEN if scenario.in_takeover else point
        self.brokers.arm(controller, deadly, victims)
        answer = create(self.brokers.address(controller), topic, assigned(scenario, roles))
        self.brokers.wait_for_death(victims)
        if scenario.in_takeover and point is not None:
            eventually(lambda: bool(self.brokers.dead(heirs)), lambda: "an heir dies", DEADLINE_S)
            (successor,) = self.brokers.dead(heirs)
            victims.append(successor)
            (last,) = set(heirs) - {successor}
            self.brokers.arm(last, None, [])  # nobody is left to take over from it
            self.brokers.wait_for_death([successor])
        return answer, victims

    def have_an_earlier_topic(self, controller: BrokerId, assignment: Assignment) -> None:
        """For a successor to take over, whichever topics came and went before."""
        if self.observer.get(znodes.topic_path(EARLIER)) is None:
            answer = create(self.brokers.address(controller), EARLIER, assignment)
            assert answer == CREATED, answer
            self.wait_until_whole(EARLIER, assignment)

    def crash(self, scenario: Scenario, point: CrashPoint, topic: str, reached: Progress) -> Row:
        roles = self.roles()
        assignment = assigned(scenario, roles)
        partitions = len(assignment)
        lives = self.observer.broker_epochs()
        self.listen()
        answer, victims = self.let_die(scenario, point, topic, roles)
        died = time.monotonic()

        survivors = sorted(self.brokers.alive())
        self.wait_until_missed(survivors)
        found = "found"
        if self.observer.get(znodes.topic_path(topic)) is None:
            found = "created again"
            assert reached is Progress.NOTHING, "the topic is lost"
            assignment = [[each for each in held if each in survivors] for held in assignment]
            again = create(self.brokers.address(self.controller()), topic, assignment)
            assert again == CREATED, f"cannot be created again: {again}"
        else:
            assert reached is not Progress.NOTHING or Role.CONTROLLER not in scenario.victims
        self.wait_until_led(topic, partitions, survivors)
        leaders_s = time.monotonic() - died
        names = {broker: role for role, broker in roles.items()}
        allowed = self.allowed_epochs(scenario, reached, topic, successor=names[victims[-1]])

        back = time.monotonic()
        self.brokers.restart(victims)
        self.wait_until_whole(topic, assignment)
        whole_s = time.monotonic() - back
        replayed = self.replay_what_is_stale(self.listen())
        epochs = self.check_states(topic, partitions)
        self.check_bystanders(lives, victims)
        for index, epoch in enumerate(epochs):
            assert epoch in allowed[index], f"leader epoch {epoch} of {index}, not {allowed[index]}"
        self.check_directories(topic, assignment)
        assert not self.invariants.broken, "; ".join(self.invariants.broken)
        return Row(
            registry=self.brokers.registry_name,
            scenario=scenario.name,
            point=str(point),
            client=answer,
            topic=found,
            leaders_s=leaders_s,
            whole_s=whole_s,
            epochs=",".join(map(str, epochs)),
            replayed=replayed,
        )

    def roles(self) -> dict[Role, BrokerId]:
        controller = self.controller()
        replica, other = sorted(self.brokers.alive() - {controller})
        return {Role.CONTROLLER: controller, Role.REPLICA: replica, Role.OTHER: other}

    # ---- judging

    def check_states(self, topic: str, partitions: int) -> list[int]:
        """Every broker tells what the registry says. The leader epochs."""
        states = self.observer.states(topic, partitions)
        assert sorted(states) == list(range(partitions)), f"states are missing: {states}"
        for broker in sorted(self.brokers.alive()):
            view = topics_of(self.brokers.address(broker), [topic])[topic]
            for told in view.partitions:
                known = states[told.partition]
                assert (told.leader, told.leader_epoch, told.isr) == (
                    known.leader,
                    known.leader_epoch,
                    known.isr,
                ), f"broker {broker} tells {told}, the registry {known}"
        return [states[index].leader_epoch for index in range(partitions)]

    def check_bystanders(self, before: dict[BrokerId, int], victims: list[BrokerId]) -> None:
        """Nobody but the victims lost a session: if somebody did, the machine was too slow for the timeout, and the
        epochs say nothing."""
        now = self.observer.broker_epochs()
        lost = [each for each in before if each not in victims and now[each] != before[each]]
        assert not lost, f"the sessions of {lost} timed out though nobody killed them"

    def allowed_epochs(
        self, scenario: Scenario, reached: Progress, topic: str, *, successor: Role
    ) -> list[set[int]]:
        """To be asked when the dead are missed, and before they are back."""
        missed = self.observer.stat(znodes.BROKER_IDS).pzxid
        return [
            leader_epochs(
                scenario,
                replicas,
                reached,
                created_without_the_dead=missed < self.observer.stat(path).czxid,
                successor=successor,
            )
            for index, replicas in enumerate(scenario.assignment)
            for path in [znodes.state_path(TopicPartition(topic, index))]
        ]

    def check_directories(self, topic: str, assignment: Assignment) -> None:
        for index, replicas in enumerate(assignment):
            for broker in replicas:
                directory = self.brokers.log_dir(broker) / f"{topic}-{index}"
                assert directory.is_dir(), f"{directory} is missing"

    def listen(self) -> list[Exchange]:
        """What was said since the last time, judged."""
        heard = self.listener.new_exchanges(self.brokers.traces())
        self.invariants.hear(heard, self.brokers.ports())
        return heard

    def replay_what_is_stale(self, sent: list[Exchange]) -> str:
        """Invariants 11 and 1: requests of this run that were meant for a former life of their broker, or that come
        from a controller since replaced, are sent once more, to the brokers as they are now."""
        lives = self.observer.broker_epochs()
        ports = self.brokers.ports()
        in_charge = self.observer.controller_epoch()
        before = self.everything_told()
        former_life = former_controller = 0
        for each in sent:
            if each.request.broker_epoch < lives[ports[each.port]]:
                wanted = ErrorCode.STALE_BROKER_EPOCH
                former_life += 1
            elif each.request.controller_epoch < in_charge:
                wanted = ErrorCode.STALE_CONTROLLER_EPOCH
                former_controller += 1
            else:
                continue
            code = self.send_again(each)
            assert code == wanted, f"{ErrorCode(code).name}, not {wanted.name}: {each.request}"
        after = self.everything_told()
        assert after == before, f"stale requests had an effect: {before} became {after}"
        return f"{former_life}+{former_controller}"

    def send_again(self, exchange: Exchange) -> int:
        with RawConnection(self.brokers.address(self.brokers.ports()[exchange.port])) as connection:
            connection.send(exchange.frame)
            version = int.from_bytes(exchange.frame[VERSION_AT], "big")
            return error_of(exchange.request, version, connection.receive())

    def everything_told(self) -> list[dict[str, TopicView]]:
        return [topics_of(self.brokers.address(each)) for each in sorted(self.brokers.alive())]


def assigned(scenario: Scenario, roles: dict[Role, BrokerId]) -> Assignment:
    return [[roles[role] for role in replicas] for replicas in scenario.assignment]
