"""A cluster with an observer: waiting for states, and checks after recovery."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec

from barnabas.client.view import PartitionView, TopicView
from barnabas.errors import ErrorCode
from barnabas.metadata import znodes
from barnabas.model import BrokerId, LeaderAndIsr
from tests.lifecycle.client import Address, eventually, topic_error, topics_of
from tests.lifecycle.clusters import Brokers
from tests.lifecycle.invariants import Invariants
from tests.lifecycle.observer import Observer
from tests.lifecycle.scenarios import Role
from tests.lifecycle.wire import Exchange, TraceReader, error_of
from tests.raw_connection import RawConnection

DEADLINE_S = 30.0
DONE = ErrorCode.NONE.name
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
NOT_CONTROLLER = ErrorCode.NOT_CONTROLLER.name
VERSION_AT = slice(6, 8)

Assignment = list[list[BrokerId]]
P = ParamSpec("P")


class WatchedCluster:
    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.invariants = Invariants()
        self.trace_reader = TraceReader()
        brokers.start()
        try:
            self.observer = Observer(brokers.observer_registry(), self.invariants)
            self.observer.begin()
        except BaseException:
            brokers.stop()
            raise

    def stop(self) -> None:
        try:
            self.observer.end()
        finally:
            self.brokers.stop()

    # ---- roles

    def controller(self) -> BrokerId:
        eventually(lambda: self.observer.controller() is not None, lambda: "a controller", 30.0)
        found = self.observer.controller()
        assert found is not None
        return found

    def ask(
        self, request: Callable[Concatenate[Address, P], str], *args: P.args, **kwargs: P.kwargs
    ) -> str:
        """Send a request to the controller. The registry shows an election before the new controller knows of it.
        Until then it returns NOT_CONTROLLER, and the request is retried, as clients do."""
        answers: list[str] = []

        def is_answered() -> bool:
            address = self.brokers.address(self.controller())
            answers.append(request(address, *args, **kwargs))
            return answers[-1] != NOT_CONTROLLER

        eventually(is_answered, lambda: f"there is a controller: {answers}", DEADLINE_S)
        return answers[-1]

    def roles(self) -> dict[Role, BrokerId]:
        controller = self.controller()
        replica, other = sorted(self.brokers.alive() - {controller})
        return {Role.CONTROLLER: controller, Role.REPLICA: replica, Role.OTHER: other}

    def fail_over(self) -> None:
        """Start a new controller epoch without a broker failure. The same broker may be elected again."""
        epoch = self.observer.controller_epoch()
        self.observer.run(self.observer.session.delete(znodes.CONTROLLER))
        eventually(
            lambda: self.observer.controller_epoch() > epoch, lambda: "another epoch", DEADLINE_S
        )

    # ---- waiting

    def wait_until_healthy(self, topic: str, assignment: Assignment) -> None:
        """Wait until all brokers report all replicas of this topic and of all others as in sync."""

        def is_healthy(views: dict[str, TopicView]) -> bool:
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
            lambda: all(is_healthy(topics_of(each)) for each in self.addresses()),
            lambda: f"all replicas in sync: {self.all_views()}",
            DEADLINE_S,
        )

    def wait_until_led(self, topic: str, partitions: int, survivors: list[BrokerId]) -> None:
        """Wait until every partition has a live leader, and the ISR has no failed brokers."""

        def is_led(view: TopicView | None) -> bool:
            return (
                view is not None
                and len(view.partitions) == partitions
                and all(
                    each.leader in survivors and set(each.isr) <= set(survivors)
                    for each in view.partitions
                )
            )

        addresses = [self.brokers.address(each) for each in survivors]
        eventually(
            lambda: all(is_led(topics_of(each, [topic]).get(topic)) for each in addresses),
            lambda: f"a leader for every partition: {self.views(topic, survivors)}",
            DEADLINE_S,
        )

    def wait_until_moved(self, topic: str, assignment: Assignment) -> None:
        """Wait for the last write of reassignments: the first partitions of the topic have this final assignment."""

        def is_moved() -> bool:
            found = self.topic_znode(topic)
            assert found is not None, f"{topic} is lost"
            return all(
                found.partitions[index] == znodes.ReplicaAssignment(replicas=tuple(replicas))
                for index, replicas in enumerate(assignment)
            )

        eventually(
            is_moved,
            lambda: f"{topic} moves to {assignment}: {self.topic_znode(topic)}",
            DEADLINE_S,
        )

    def wait_until_hidden(self, topic: str, brokers: list[BrokerId]) -> None:
        """Wait until the brokers report the topic as unknown."""

        def errors() -> list[str]:
            return [topic_error(self.brokers.address(each), topic) for each in brokers]

        eventually(
            lambda: set(errors()) == {UNKNOWN}, lambda: f"{topic} is hidden: {errors()}", DEADLINE_S
        )

    def wait_until_gone(self, topic: str) -> None:
        """Wait until the registry has no trace of the topic."""
        eventually(
            lambda: not self.traces_of(topic),
            lambda: f"{topic} is gone: {self.traces_of(topic)}",
            DEADLINE_S,
        )

    def wait_until_missed(self, survivors: list[BrokerId]) -> None:
        """Wait until failed brokers are gone from the registry and one of the survivors is controller."""
        failed = set(self.brokers.ports().values()) - set(survivors)
        paths = [f"{znodes.BROKER_IDS}/{each}" for each in failed]
        eventually(
            lambda: (
                # Wait for the watches first: reading the registry in a loop takes much of a core.
                not any(map(self.observer.has_node, paths))
                and sorted(self.observer.broker_epochs()) == survivors
                and self.observer.controller() in survivors
            ),
            lambda: (
                f"only {survivors} are registered, and one of them is controller: "
                f"{self.observer.broker_epochs()}, {self.observer.controller()}"
            ),
            DEADLINE_S,
        )

    # ---- reading

    def views(self, topic: str, brokers: list[BrokerId]) -> list[TopicView | None]:
        return [topics_of(self.brokers.address(each), [topic]).get(topic) for each in brokers]

    def all_views(self) -> list[dict[str, TopicView]]:
        return [topics_of(each) for each in self.addresses()]

    def addresses(self) -> list[Address]:
        return [self.brokers.address(each) for each in sorted(self.brokers.alive())]

    def topic_znode(self, topic: str) -> znodes.TopicAssignment | None:
        data = self.observer.get(znodes.topic_path(topic))
        return None if data is None else znodes.decode_topic(topic, data)

    def is_marked(self, topic: str) -> bool:
        return self.observer.get(znodes.delete_topic_path(topic)) is not None

    def traces_of(self, topic: str) -> list[str]:
        """The topic's nodes in the registry."""
        paths = (znodes.topic_path, znodes.topic_config_path, znodes.delete_topic_path)
        return [path(topic) for path in paths if self.observer.get(path(topic)) is not None]

    def directories_of(self, topic: str, partitions: int) -> dict[int, list[BrokerId]]:
        """The brokers with a directory of each partition, except directories about to be removed."""
        return {
            index: [
                broker
                for broker in sorted(self.brokers.alive())
                if (self.brokers.log_dir(broker) / f"{topic}-{index}").is_dir()
            ]
            for index in range(partitions)
        }

    # ---- checking

    def check_states(self, topic: str, partitions: int) -> list[int]:
        """Check that every broker reports the registry's state; returns the leader epochs."""
        states = self.observer.states(topic, partitions)
        assert sorted(states) == list(range(partitions)), f"states are missing: {states}"
        for broker in sorted(self.brokers.alive()):
            view = topics_of(self.brokers.address(broker), [topic])[topic]
            for reported in view.partitions:
                known = states[reported.partition]
                assert reported_state(reported) == registry_state(known), (
                    f"broker {broker} reports {reported}, the registry {known}"
                )
                assert set(reported.isr) <= set(reported.replicas), reported
        return [states[index].leader_epoch for index in range(partitions)]

    def failed_bystanders(
        self, before: dict[BrokerId, int], victims: list[BrokerId]
    ) -> list[BrokerId]:
        """Other brokers that lost their session or failed: the machine was too slow for the timeout, and the result is
        inconclusive."""
        now = self.observer.broker_epochs()
        bystanders = [each for each in self.brokers.ports().values() if each not in victims]
        dead = self.brokers.dead(bystanders)
        return [
            each
            for each in bystanders
            if each in dead or each not in before or now.get(each) != before[each]
        ]

    def check_requests(self) -> list[Exchange]:
        """Check the requests since the last call; returns them."""
        exchanges = self.trace_reader.new_exchanges(self.brokers.traces())
        self.invariants.check_exchanges(exchanges, self.brokers.ports())
        return exchanges

    def wait_until_agreed(self) -> list[dict[str, TopicView]]:
        """Wait until every broker reports the registry's states: no request is on its way. Returns their views."""
        views: list[dict[str, TopicView]] = []

        def is_agreed() -> bool:
            views[:] = self.all_views()
            states = {
                name: self.observer.states(name, len(topic.partitions))
                for name, topic in views[0].items()
            }
            return all(
                view.keys() == states.keys()
                and all(
                    reported_state(each) == registry_state(states[name].get(each.partition))
                    for name, topic in view.items()
                    for each in topic.partitions
                )
                for view in views
            )

        eventually(is_agreed, lambda: f"all brokers agree with the registry: {views}", DEADLINE_S)
        return views

    def replay_stale_requests(self, sent: list[Exchange]) -> str:
        """Check invariants 11 and 1: requests of this run that were meant for an earlier registration of their broker,
        or come from a replaced controller, are sent again to the current brokers."""
        lives = self.observer.broker_epochs()
        ports = self.brokers.ports()
        in_charge = self.observer.controller_epoch()
        before = self.wait_until_agreed()
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
        after = self.all_views()
        assert after == before, f"stale requests had an effect: {before} became {after}"
        return f"{former_life}+{former_controller}"

    def send_again(self, exchange: Exchange) -> int:
        with RawConnection(self.brokers.address(self.brokers.ports()[exchange.port])) as connection:
            connection.send(exchange.frame)
            version = int.from_bytes(exchange.frame[VERSION_AT], "big")
            return error_of(exchange.request, version, connection.receive())


PartitionFacts = tuple[int, int, tuple[int, ...]]
"""Leader, leader epoch and ISR."""


def reported_state(view: PartitionView) -> PartitionFacts:
    return view.leader, view.leader_epoch, view.isr


def registry_state(state: LeaderAndIsr | None) -> PartitionFacts | None:
    return None if state is None else (state.leader, state.leader_epoch, state.isr)
