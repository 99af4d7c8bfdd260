"""Brokers, and who watches over them: what is waited for, and by what they are judged when all is well again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec

from barnabas.client.view import TopicView
from barnabas.errors import ErrorCode
from barnabas.metadata import znodes
from barnabas.model import BrokerId
from tests.lifecycle.client import Address, eventually, told_of, topics_of
from tests.lifecycle.clusters import Brokers
from tests.lifecycle.invariants import Invariants
from tests.lifecycle.observer import Observer
from tests.lifecycle.scenarios import Role
from tests.lifecycle.wire import Exchange, Listener, error_of
from tests.raw_connection import RawConnection

DEADLINE_S = 30.0
DONE = ErrorCode.NONE.name
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
NOT_CONTROLLER = ErrorCode.NOT_CONTROLLER.name
VERSION_AT = slice(6, 8)

Assignment = list[list[BrokerId]]
P = ParamSpec("P")


class Watched:
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

    # ---- who is who

    def controller(self) -> BrokerId:
        eventually(lambda: self.observer.controller() is not None, lambda: "a controller", 30.0)
        found = self.observer.controller()
        assert found is not None
        return found

    def ask(
        self, wish: Callable[Concatenate[Address, P], str], *args: P.args, **kwargs: P.kwargs
    ) -> str:
        """Of who is in charge. The registry shows an election before the elected one has heard of it: until then it
        says that it is not the controller, and is asked again, as clients do."""
        answers: list[str] = []

        def is_heard() -> bool:
            address = self.brokers.address(self.controller())
            answers.append(wish(address, *args, **kwargs))
            return answers[-1] != NOT_CONTROLLER

        eventually(is_heard, lambda: f"somebody is in charge: {answers}", DEADLINE_S)
        return answers[-1]

    def roles(self) -> dict[Role, BrokerId]:
        controller = self.controller()
        replica, other = sorted(self.brokers.alive() - {controller})
        return {Role.CONTROLLER: controller, Role.REPLICA: replica, Role.OTHER: other}

    # ---- waiting

    def wait_until_healthy(self, topic: str, assignment: Assignment) -> None:
        """All replicas of this topic and of all others are in sync, and all brokers say so."""

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
            lambda: all(is_healthy(views) for views in self.everything_told()),
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

    def wait_until_hidden(self, topic: str, brokers: list[BrokerId]) -> None:
        """They say that there is no such topic."""

        def told() -> list[str]:
            return [told_of(self.brokers.address(each), topic) for each in brokers]

        eventually(
            lambda: set(told()) == {UNKNOWN}, lambda: f"{topic} is hidden: {told()}", DEADLINE_S
        )

    def wait_until_gone(self, topic: str) -> None:
        """There is no trace of it in the registry."""
        eventually(
            lambda: not self.traces_of(topic),
            lambda: f"{topic} is gone: {self.traces_of(topic)}",
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

    # ---- looking

    def views(self, topic: str, brokers: list[BrokerId]) -> list[TopicView | None]:
        return [topics_of(self.brokers.address(each), [topic]).get(topic) for each in brokers]

    def everything_told(self) -> list[dict[str, TopicView]]:
        return [topics_of(self.brokers.address(each)) for each in sorted(self.brokers.alive())]

    def topic_znode(self, topic: str) -> znodes.TopicAssignment | None:
        data = self.observer.get(znodes.topic_path(topic))
        return None if data is None else znodes.decode_topic(topic, data)

    def is_marked(self, topic: str) -> bool:
        return self.observer.get(znodes.delete_topic_path(topic)) is not None

    def traces_of(self, topic: str) -> list[str]:
        """Its nodes in the registry."""
        paths = (znodes.topic_path, znodes.topic_config_path, znodes.delete_topic_path)
        return [path(topic) for path in paths if self.observer.get(path(topic)) is not None]

    def directories_of(self, topic: str, partitions: int) -> dict[int, list[BrokerId]]:
        """Who has a directory of each partition, but for those that are about to be removed."""
        return {
            index: [
                broker
                for broker in sorted(self.brokers.alive())
                if (self.brokers.log_dir(broker) / f"{topic}-{index}").is_dir()
            ]
            for index in range(partitions)
        }

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

    def struck_bystanders(
        self, before: dict[BrokerId, int], victims: list[BrokerId]
    ) -> list[BrokerId]:
        """Who else lost a session, or died: then the machine was too slow for the timeout, and what was found says
        nothing of the brokers."""
        now = self.observer.broker_epochs()
        bystanders = [each for each in self.brokers.ports().values() if each not in victims]
        dead = self.brokers.dead(bystanders)
        return [
            each
            for each in bystanders
            if each in dead or each not in before or now.get(each) != before[each]
        ]

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
