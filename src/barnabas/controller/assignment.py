"""Assignment of replicas to brokers.

Goals:

- Leaders and followers are spread evenly over the brokers.
- The followers of one leader's partitions are spread over all other brokers. If the leader fails, they share its load.
- With racks, the replicas of a partition are on as many racks as possible.

Without racks: the brokers are b[0..n-1], sorted by id. The first replica of partition P is on b[f], with
f = (P + start) mod n. The other replicas follow at a distance from b[f]. The distance (`shift`) grows by one each time
P reaches a multiple of n. Example with five brokers, three replicas and start = shift = 0:

    p0  0,1,2    p1  1,2,3    p2  2,3,4    p3  3,4,0    p4  4,0,1
    p5  0,2,3    p6  1,3,4    p7  2,4,0    p8  3,0,1    p9  4,1,2

With racks: the same, over a list of brokers in which racks alternate. A candidate is skipped if its rack has a replica
of P and another rack has none. A broker that has a replica of P is skipped while another broker has none. The distance
grows by the number of racks.

`start` and `shift` are random for a new topic. For added partitions, both are the index of the broker with the first
replica of partition 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from random import Random

from msgspec.structs import replace

from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.znodes import ReplicaAssignment
from barnabas.model import Broker, BrokerId

BrokerIds = tuple[BrokerId, ...]


def assign_replicas(
    brokers: Sequence[Broker],
    *,
    partitions: int,
    replication_factor: int,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> tuple[BrokerIds, ...]:
    """Return the replicas of `partitions` partitions, numbered from `first_partition`.

    The caller has validated the counts. Raises MissingRacks.
    """
    check_racks(brokers)
    # Without racks, each broker is a rack of its own. The padding sorts the racks by broker id.
    racks = {each.id: f"{each.id:010}" if each.rack is None else each.rack for each in brokers}
    ordered = alternate_racks(racks)
    size = len(ordered)
    rack_count = len(set(racks.values()))
    assigned = []
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % size == 0:
            shift += 1
        first = (partition + start) % size
        chosen = [ordered[first]]
        used_racks = {racks[ordered[first]]}
        distance = shift * rack_count
        while len(chosen) < replication_factor:
            broker = ordered[follower_index(first, distance, size)]
            distance += 1
            is_rack_free = racks[broker] not in used_racks or len(used_racks) == rack_count
            if is_rack_free and (broker not in chosen or len(set(chosen)) == size):
                chosen.append(broker)
                used_racks.add(racks[broker])
        assigned.append(tuple(chosen))
    return tuple(assigned)


class MissingRacks(ApiError):
    """Some brokers have a rack and others do not."""


def check_racks(brokers: Sequence[Broker]) -> None:
    """Raise MissingRacks if some brokers have a rack and others have none."""
    missing = sorted(broker.id for broker in brokers if broker.rack is None)
    if missing and len(missing) < len(brokers):
        raise MissingRacks(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"not all brokers have a rack: set broker.rack on brokers {', '.join(map(str, missing))}",
        )


def assign_at_random(
    brokers: Sequence[Broker], *, partitions: int, replication_factor: int, random: Random
) -> tuple[BrokerIds, ...]:
    """Assign the partitions of a new topic."""
    return assign_replicas(
        brokers,
        partitions=partitions,
        replication_factor=replication_factor,
        start=random.randrange(len(brokers)),
        shift=random.randrange(len(brokers)),
    )


def continue_assignment(
    brokers: Sequence[Broker], *, first_replicas: Sequence[BrokerId], current: int, total: int
) -> tuple[BrokerIds, ...]:
    """Assign the partitions added to a topic that grows from `current` to `total` partitions.

    `first_replicas` are the replicas of partition 0.
    """
    start = index_at_or_after(sorted(broker.id for broker in brokers), first_replicas[0])
    return assign_replicas(
        brokers,
        partitions=total - current,
        replication_factor=len(first_replicas),
        start=start,
        shift=start,
        first_partition=current,
    )


def index_at_or_after(ids: Sequence[BrokerId], preferred: BrokerId) -> int:
    """Return the index of the first of the sorted ids that is at least `preferred`, or 0 if all are smaller."""
    return next((index for index, broker in enumerate(ids) if broker >= preferred), 0)


def follower_index(first: int, distance: int, size: int) -> int:
    """Return the index of a follower. It is never `first`: the distance wraps within the other `size` - 1 brokers."""
    return (first + 1 + distance % (size - 1)) % size


def alternate_racks(racks: Mapping[BrokerId, str]) -> list[BrokerId]:
    """Return all brokers, one of each rack in turn, sorted by rack and id: {0:a 1:a 2:b 3:b} gives 0,2,1,3."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker, rack in sorted(racks.items()):
        by_rack.setdefault(rack, []).append(broker)
    turns = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for turn in turns for broker in turn if broker is not None]


# ---- reassignments ----------------------------------------------------------------------------------------


def origin_replicas(assignment: ReplicaAssignment) -> BrokerIds:
    """Return the replicas before the reassignment."""
    return tuple(each for each in assignment.replicas if each not in assignment.adding)


def target_replicas(assignment: ReplicaAssignment) -> BrokerIds:
    """Return the replicas after the reassignment."""
    return tuple(each for each in assignment.replicas if each not in assignment.removing)


def is_being_reassigned(assignment: ReplicaAssignment) -> bool:
    return bool(assignment.adding or assignment.removing)


def reassign_to(assignment: ReplicaAssignment, target: Sequence[BrokerId]) -> ReplicaAssignment:
    """Start a reassignment. From 1,2,3 to 4,5,6: replicas 4,5,6,1,2,3, adding 4,5,6, removing 1,2,3."""
    origin = dict.fromkeys(origin_replicas(assignment))
    wanted = dict.fromkeys(target)
    replicas = tuple(wanted | origin)
    return ReplicaAssignment(
        replicas=replicas,
        adding=tuple(each for each in replicas if each not in origin),
        removing=tuple(each for each in replicas if each not in wanted),
    )


def with_replica(assignment: ReplicaAssignment, broker: BrokerId) -> ReplicaAssignment:
    return replace(assignment, replicas=(*assignment.replicas, broker))


def without_replica(assignment: ReplicaAssignment, broker: BrokerId) -> ReplicaAssignment:
    return ReplicaAssignment(
        replicas=tuple(each for each in assignment.replicas if each != broker),
        adding=tuple(each for each in assignment.adding if each != broker),
        removing=tuple(each for each in assignment.removing if each != broker),
    )
