"""Reassignments, elections and controlled shutdown on three brokers. Broker 1 is the controller."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.messages.controlled_shutdown import ControlledShutdownRequest
from barnabas.wire.messages.elect_leaders import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersTopic,
)
from barnabas.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopic,
)
from interop.scenarios.requests import batch, create, delete, fetch, grow, grown, produce
from interop.scenarios.step import Request
from interop.scenarios.three.step import Pause, Resume, Start, Step, Stop
from interop.scenarios.three.topic_creation import ask, assigned

Replicas = tuple[int, ...]
PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


def reassign(topic: str, targets: Mapping[int, Replicas | None]) -> Request:
    partitions = tuple(ReassignablePartition(*pair) for pair in targets.items())
    return AlterPartitionReassignmentsRequest(topics=(ReassignableTopic(topic, partitions),))


def list_moves(*topics: tuple[str, Replicas]) -> Request:
    wanted = tuple(ListPartitionReassignmentsTopic(*topic) for topic in topics)
    return ListPartitionReassignmentsRequest(topics=wanted or None)


def elect(kind: int, *topics: tuple[str, Replicas]) -> Request:
    wanted = tuple(ElectLeadersTopic(*topic) for topic in topics)
    return ElectLeadersRequest(
        election_type=kind, topic_partitions=wanted or None, timeout_ms=10_000
    )


REFUSED: dict[str, tuple[str, dict[int, Replicas | None]]] = {
    "to no broker": ("move", {0: ()}),
    "to a broker twice": ("move", {0: (2, 2)}),
    "to a negative broker": ("move", {0: (-1, 2)}),
    "to an unknown broker": ("move", {0: (1, 77)}),
    "an unknown topic": ("unknown", {0: (1,)}),
    "an unknown partition": ("move", {7: (1,)}),
    "a negative partition": ("move", {-1: (1,)}),
    "to nothing: cancel without a reassignment": ("move", {0: None}),
    "cancel of an unknown topic": ("unknown", {0: None}),
    "one good and one bad": ("move", {0: (1, 2), 1: (2, 2)}),
}
ACCEPTED: dict[str, tuple[str, dict[int, Replicas | None]]] = {
    "the leader and its partition": ("move", {0: (3, 2)}),
    "two partitions": ("move", {0: (2, 1), 1: (1, 3)}),
    "to the same brokers": ("move", {0: (2, 1)}),
    "to another order": ("move", {0: (1, 2)}),
    "to one more replica": ("move-1", {0: (1, 2)}),
    "to three replicas": ("move-1", {0: (3, 1, 2)}),
    "back to one replica": ("move-1", {0: (3,)}),
    "one replica elsewhere": ("move-1", {0: (2,)}),
    "three replicas to two": ("move-3", {0: (2, 1)}),
    "two replicas to three": ("move-3", {0: (3, 2, 1)}),
}

STEPS: tuple[Step, ...] = (
    ask(
        "create what moves",
        create(
            assigned("move", (1, 2), (2, 3)),
            assigned("move-1", (1,)),
            assigned("move-3", (3, 1, 2)),
            assigned("elected", (1, 2, 3), (2, 3, 1), (3,)),
        ),
    ),
    ask("produce to what moves", produce("move-1", batch(b"moved"))),
    ask("list reassignments: none", list_moves()),
    ask("list reassignments of partitions", list_moves(("move", (0, 1, 9)), ("unknown", (0,)))),
    ask("of broker 2: list reassignments", list_moves(), 2),
    ask("of broker 2: list reassignments of partitions", list_moves(("move", (0,))), 2),
    ask("of broker 2: reassign", reassign("move", {0: (3, 2)}), 2),
    ask("reassign nothing", AlterPartitionReassignmentsRequest(topics=())),
    *(ask(f"reassign {what}", reassign(*request)) for what, request in REFUSED.items()),
    *(ask(f"reassign {what}", reassign(*request)) for what, request in ACCEPTED.items()),
    ask("fetch what has moved", fetch("move-1", {0: 0}), 2, version=12),
    # A target that does not fetch: nothing is at rest meanwhile.
    Step(name="three brokers: pause 3", action=Pause(broker=3), is_recorded=False),
    ask("reassign to the paused broker", reassign("move-1", {0: (3,)}), is_recorded=False),
    ask("list the reassignment that waits", list_moves(), is_recorded=False),
    ask(
        "list the reassignment that waits, by name",
        list_moves(("move-1", (0,)), ("move", (0,))),
        is_recorded=False,
    ),
    ask("grow what is reassigned", grow(grown("move-1", 2)), is_recorded=False),
    # No running broker is added: it might join the ISR before the cancellation, or not.
    ask("replace the reassignment", reassign("move-1", {0: (2, 3)}), is_recorded=False),
    ask("list the replaced reassignment", list_moves(), is_recorded=False),
    ask("cancel the reassignment", reassign("move-1", {0: None}), is_recorded=False),
    ask("list after the cancellation", list_moves(), is_recorded=False),
    Step(name="three brokers: resume 3", action=Resume(broker=3), is_recorded=False),
    ask("after the cancellation", list_moves()),
    # Elections.
    ask("prefer other leaders", reassign("elected", {0: (2, 1, 3), 1: (3, 2, 1)})),
    *(
        ask(f"elect {what}, version {version}", elect(kind, *topics), version=version)
        for version in (0, 1, 2)
        for what, kind, topics in (
            ("an unknown topic", PREFERRED, (("unknown", (0,)),)),
            ("an unknown partition", PREFERRED, (("elected", (7,)),)),
            ("who leads already", PREFERRED, (("elected", (2,)),)),
        )
    ),
    ask("elect uncleanly where a leader is alive", elect(UNCLEAN, ("elected", (0, 2)))),
    ask("of broker 2: elect", elect(PREFERRED, ("elected", (0,))), 2),
    ask("elect one preferred leader", elect(PREFERRED, ("elected", (0,)))),
    ask("elect one preferred leader again", elect(PREFERRED, ("elected", (0,)))),
    ask("elect all preferred leaders", elect(PREFERRED)),
    ask("elect all preferred leaders again", elect(PREFERRED)),
    # Controlled shutdown.
    ask(
        "controlled shutdown of an earlier registration",
        ControlledShutdownRequest(broker_id=2, broker_epoch=1),
    ),
    ask(
        "of broker 2: controlled shutdown",
        ControlledShutdownRequest(broker_id=2, broker_epoch=1),
        2,
    ),
    Step(name="three brokers: shut down 3", action=Stop(broker=3)),
    ask("elect who is down", elect(PREFERRED, ("elected", (1,)))),
    ask("elect uncleanly where nobody is left", elect(UNCLEAN, ("elected", (2,)))),
    ask("elect uncleanly where a leader is left", elect(UNCLEAN, ("elected", (0, 1)))),
    ask("reassign to a broker that is down", reassign("move", {0: (3, 1)})),
    ask("reassign what keeps a broker that is down", reassign("move-3", {0: (2, 3, 1)})),
    ask("reassign what is offline", reassign("elected", {2: (3,)})),
    Step(name="three brokers: start 3 after its shutdown", action=Start(broker=3)),
    ask("elect all preferred leaders at last", elect(PREFERRED)),
    ask("delete what moved", delete("move", "move-1", "move-3", "elected")),
)
