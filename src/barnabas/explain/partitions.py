"""Rules for partitions: no leader, too few in-sync replicas, not the preferred leader, an unfinished reassignment, an
open transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from barnabas.client.view import PartitionView
from barnabas.explain.facts import ClusterFacts, TopicSettings
from barnabas.explain.finding import Cause, Finding, Severity
from barnabas.model import TopicPartition

Values = Mapping[str, str | int]

TRANSACTION_OPEN_MS = 10_000
"""Transactions that are open for a shorter time are normal, and not reported."""


class PartitionCase(Struct, frozen=True, kw_only=True):
    """One partition with the facts of its cluster."""

    facts: ClusterFacts
    partition: TopicPartition
    seen: PartitionView
    settings: TopicSettings
    imbalance: Mapping[int, float]
    """See `imbalance_by_broker`."""

    def finding(
        self,
        cause: Cause,
        severity: Severity,
        brokers: Sequence[int] = (),
        *,
        since_ms: int | None = None,
        lag: int | None = None,
        values: Values | None = None,
    ) -> Finding:
        return Finding(
            cause=cause,
            severity=severity,
            topic=self.partition.topic,
            partitions=(self.partition,),
            brokers=tuple(brokers),
            since_ms=since_ms,
            lag=lag,
            values=values or {},
        )

    def is_online(self, broker: int) -> bool:
        """Whether the broker is registered and the log directory of its replica works."""
        return self.facts.is_registered(broker) and broker not in self.seen.offline_replicas

    def not_in_sync_since(self, broker: int) -> int | None:
        """Return when the replica left the ISR; if that is not in the history, when its broker was lost."""
        history = self.facts.history
        left = history.not_in_sync_since.get((self.partition, broker))
        lost = history.lost_brokers.get(broker)
        return lost.at_ms if left is None and lost is not None else left

    @property
    def no_leader_since(self) -> int | None:
        """Return when the leader was lost; if that is not in the history, when the in-sync replicas were."""
        history = self.facts.history
        lost = [
            each.at_ms for broker in self.seen.isr if (each := history.lost_brokers.get(broker))
        ]
        return history.no_leader_since.get(self.partition, max(lost, default=None))

    @property
    def adding(self) -> tuple[int, ...]:
        move = self.facts.reassignments.get(self.partition)
        return () if move is None else tuple(move.adding)

    @property
    def removing(self) -> tuple[int, ...]:
        move = self.facts.reassignments.get(self.partition)
        return () if move is None else tuple(move.removing)

    def lag_of(self, broker: int) -> int | None:
        """Return the number of records that the leader has and this replica does not have; None if unknown."""
        ends = self.facts.ends
        leader_end = ends.get((self.partition, self.seen.leader))
        end = ends.get((self.partition, broker))
        return None if leader_end is None or end is None else max(0, leader_end - end)

    def throttle_of(self, broker: int) -> Values:
        """Return the limits of the replication to this replica: its broker's, its leader's, or none.

        A limit needs two settings: the rate of the broker, and the replica in the list of the topic.
        """
        cluster, topic, leader = self.facts.settings, self.settings, int(self.seen.leader)
        limits: dict[str, tuple[int, Mapping[int, int]]] = {}
        if is_listed(topic.throttled_followers, self.partition, broker):
            limits["throttled_follower"] = broker, cluster.follower_rates
        if is_listed(topic.throttled_leaders, self.partition, leader):
            limits["throttled_leader"] = leader, cluster.leader_rates
        found = {name: limited for name, (limited, rates) in limits.items() if limited in rates}
        if not found:
            return {}
        return {**found, "rate": min(limits[name][1][limited] for name, limited in found.items())}


def is_listed(replicas: str, partition: TopicPartition, broker: int) -> bool:
    """Whether a setting (`*`, or `partition:broker,…`) names this replica."""
    entries = replicas.replace(" ", "").split(",")
    return entries == ["*"] or f"{partition.partition}:{broker}" in entries


def explain_partition(
    facts: ClusterFacts, topic: str, seen: PartitionView, imbalance: Mapping[int, float]
) -> Iterator[Finding]:
    case = PartitionCase(
        facts=facts,
        partition=TopicPartition(topic, seen.partition),
        seen=seen,
        settings=facts.topic_settings.get(topic, TopicSettings()),
        imbalance=imbalance,
    )
    if seen.is_offline or not facts.is_registered(seen.leader):
        yield find_no_leader(case)
    else:
        yield from find_silent_leader(case)
        yield from find_missing_replicas(case)
        yield from find_other_leader(case)
        yield from find_open_transaction(case)
    yield from find_min_isr(case)
    yield from find_reassignment(case)


# ---- no leader ------------------------------------------------------------------------------------------------


def find_no_leader(case: PartitionCase) -> Finding:
    seen = case.seen
    in_sync = sorted([broker for broker in seen.isr if broker in seen.replicas] or seen.isr)
    eligible = [broker for broker in in_sync if case.is_online(broker)]
    online = [broker for broker in seen.replicas if case.is_online(broker)]
    error = Severity.ERROR
    since_ms = case.no_leader_since
    if not in_sync or seen.leader_epoch < 0:
        cause = Cause.NEVER_LED if not online else Cause.ELECTION_PENDING
        return case.finding(cause, error, sorted(online or seen.replicas), since_ms=since_ms)
    if eligible:
        return case.finding(Cause.ELECTION_PENDING, error, eligible, since_ms=since_ms)
    failed = [broker for broker in in_sync if case.facts.is_registered(broker)]
    if failed:
        return case.finding(
            *(Cause.IN_SYNC_LOG_DIR_FAILED, error, failed),
            since_ms=since_ms,
            values=unclean_values(case, online),
        )
    if not online:
        return case.finding(
            *(Cause.ALL_REPLICAS_DOWN, error, in_sync),
            since_ms=since_ms,
            values={"replicas": len(seen.replicas)},
        )
    return case.finding(
        *(Cause.IN_SYNC_REPLICAS_DOWN, error, in_sync),
        since_ms=since_ms,
        values=unclean_values(case, online),
    )


def unclean_values(case: PartitionCase, online: Sequence[int]) -> Values:
    """Return the replica that an unclean election would choose, where its log ends, and since when it is not in sync.

    The election takes the first online replica of the assignment.
    """
    if not online:
        return {}
    chosen = online[0]
    values: dict[str, str | int] = {"unclean": chosen}
    end = case.facts.ends.get((case.partition, chosen))
    if end is not None:
        values["unclean_end"] = end
    left = case.not_in_sync_since(chosen)
    if left is not None:
        values["unclean_since_ms"] = left
    return values


def find_silent_leader(case: PartitionCase) -> Iterator[Finding]:
    leader, facts = case.seen.leader, case.facts
    if facts.is_silent(leader):
        can_lead = any(
            case.is_online(broker) and not facts.is_silent(broker) for broker in case.seen.isr
        )
        values = {"can_fail_over": int(can_lead)}
        yield case.finding(Cause.LEADER_SILENT, Severity.ERROR, [leader], values=values)


# ---- in-sync replicas -----------------------------------------------------------------------------------------


def find_missing_replicas(case: PartitionCase) -> Iterator[Finding]:
    """Yield one finding for all replicas that are missing for the same reason, without those that are moved."""
    moved = {*case.seen.isr, *case.adding, *case.removing}
    missing = sorted(broker for broker in case.seen.replicas if broker not in moved)
    causes = {broker: missing_cause(case, broker) for broker in missing}
    for cause, values in unique_pairs(causes.values()):
        brokers = [broker for broker in missing if causes[broker] == (cause, values)]
        times = [time for broker in brokers if (time := case.not_in_sync_since(broker))]
        lags = [lag for broker in brokers if (lag := case.lag_of(broker)) is not None]
        yield case.finding(
            *(cause, Severity.WARNING, brokers),
            since_ms=min(times, default=None),
            lag=max(lags, default=None),
            values=values,
        )


def unique_pairs(pairs: Iterable[tuple[Cause, Values]]) -> list[tuple[Cause, Values]]:
    found: list[tuple[Cause, Values]] = []
    for pair in pairs:
        if pair not in found:
            found.append(pair)
    return found


def missing_cause(case: PartitionCase, broker: int) -> tuple[Cause, Values]:
    """Return why a replica is not in sync. The first cause that applies explains the later ones."""
    facts = case.facts
    loss = facts.history.lost_brokers.get(broker)
    if not facts.is_registered(broker):
        if loss is not None:
            return (Cause.FOLLOWER_STOPPED if loss.is_shutdown else Cause.FOLLOWER_DOWN), {}
        return (
            Cause.FOLLOWER_NEVER_SEEN if is_never_seen(facts, broker) else Cause.FOLLOWER_DOWN
        ), {}
    if facts.is_silent(broker):
        return Cause.FOLLOWER_SILENT, {}
    failed_dirs = facts.failed_dirs(broker)
    if loss is not None and loss.is_shutdown and not failed_dirs:
        return Cause.FOLLOWER_SHUTTING_DOWN, {}
    if broker in case.seen.offline_replicas:
        return Cause.FOLLOWER_LOG_DIR_FAILED, {"dirs": ", ".join(failed_dirs)}
    if full := facts.full_dirs(broker):
        return Cause.FOLLOWER_DISK_FULL, {"dirs": ", ".join(full)}
    if case.lag_of(broker) == 0:
        return Cause.ISR_CHANGE_PENDING, {}
    if throttle := case.throttle_of(broker):
        return Cause.FOLLOWER_THROTTLED, throttle
    return Cause.FOLLOWER_LAGGING, {}


def is_never_seen(facts: ClusterFacts, broker: int) -> bool:
    """Whether the history knows brokers, but never had this one in an ISR."""
    known = facts.history.known_brokers
    return bool(known) and broker not in known


def find_min_isr(case: PartitionCase) -> Iterator[Finding]:
    minimum = case.settings.min_insync_replicas
    seen = case.seen
    values: dict[str, str | int] = {"minimum": minimum}
    if minimum > len(seen.replicas):
        values["replicas"] = len(seen.replicas)
        yield case.finding(Cause.MIN_ISR_ABOVE_REPLICAS, Severity.ERROR, values=values)
    elif not seen.is_offline and len(seen.isr) < minimum:
        missing = sorted(broker for broker in seen.replicas if broker not in seen.isr)
        times = [time for broker in missing if (time := case.not_in_sync_since(broker))]
        values["in_sync"] = len(seen.isr)
        causes = [missing_cause(case, broker) for broker in missing]
        if all(cause == causes[0] for cause in causes):
            values |= {"because": causes[0][0].value, **causes[0][1]}
        yield case.finding(
            *(Cause.BELOW_MIN_ISR, Severity.ERROR, missing),
            since_ms=max(times, default=None),
            values=values,
        )


# ---- transactions ---------------------------------------------------------------------------------------------


def find_open_transaction(case: PartitionCase) -> Iterator[Finding]:
    """Find a transaction that has held back read_committed consumers for longer than usual."""
    found = case.facts.transactions.get(case.partition)
    if found is None:
        return
    since_ms = found.last_record_ms if found.start_ms is None else found.start_ms
    if case.facts.now_ms - since_ms < TRANSACTION_OPEN_MS:
        return
    values: dict[str, str | int] = {"producer_id": found.producer_id}
    if found.transactional_id is None:
        cause, severity = Cause.TRANSACTION_HANGING, Severity.WARNING
        values["start_offset"] = found.start_offset
    else:
        is_ongoing = found.state == "Ongoing"
        cause = Cause.TRANSACTION_OPEN if is_ongoing else Cause.TRANSACTION_ENDING
        severity = Severity.NOTE if is_ongoing else Severity.WARNING
        values |= {
            "transactional_id": found.transactional_id,
            "state": found.state,
            "timeout_ms": found.timeout_ms,
        }
    yield case.finding(cause, severity, since_ms=since_ms, lag=found.waiting, values=values)


# ---- preferred leaders ----------------------------------------------------------------------------------------


def find_other_leader(case: PartitionCase) -> Iterator[Finding]:
    """Find why a partition is not led by its first replica, if that is registered."""
    seen, facts = case.seen, case.facts
    preferred = seen.replicas[0] if seen.replicas else seen.leader
    if preferred == seen.leader or not facts.is_registered(preferred) or case.adding:
        return
    values: dict[str, str | int] = {"leader": int(seen.leader)}
    if preferred not in seen.isr:
        cause = Cause.PREFERRED_NOT_IN_SYNC
    elif not facts.settings.is_rebalance_enabled:
        cause = Cause.PREFERRED_REBALANCE_DISABLED
    elif case.imbalance.get(preferred, 0.0) <= facts.settings.imbalance_percentage:
        cause = Cause.PREFERRED_BELOW_THRESHOLD
        values["threshold"] = facts.settings.imbalance_percentage
    else:
        cause = Cause.PREFERRED_WAITS_FOR_CHECK
        values["interval_s"] = facts.settings.imbalance_check_s
    yield case.finding(cause, Severity.NOTE, [preferred], values=values)


def imbalance_by_broker(facts: ClusterFacts) -> dict[int, float]:
    """Return broker → percentage of the partitions with this preferred leader that another broker leads."""
    preferred: dict[int, int] = {}
    moved: dict[int, int] = {}
    for topic in facts.view.topics.values():
        for each in topic.partitions:
            if each.replicas:
                first = each.replicas[0]
                preferred[first] = preferred.get(first, 0) + 1
                moved[first] = moved.get(first, 0) + (each.leader != first)
    return {broker: 100 * moved[broker] / count for broker, count in preferred.items()}


# ---- reassignments --------------------------------------------------------------------------------------------


def find_reassignment(case: PartitionCase) -> Iterator[Finding]:
    registry = case.facts.registry
    if case.partition not in case.facts.reassignments:
        if registry is not None and case.partition in registry.requested_moves:
            yield case.finding(Cause.MOVE_REQUESTED, Severity.WARNING)
        return
    waiting = [broker for broker in case.adding if broker not in case.seen.isr]
    for broker in waiting:
        cause, values = move_cause(case, broker)
        yield case.finding(
            *(cause, Severity.WARNING, [broker]), lag=case.lag_of(broker), values=values
        )
    if not waiting:
        yield case.finding(Cause.MOVE_FINISHING, Severity.NOTE)


def move_cause(case: PartitionCase, broker: int) -> tuple[Cause, Values]:
    facts = case.facts
    if not facts.is_registered(broker):
        return Cause.MOVE_TARGET_DOWN, {}
    if facts.is_silent(broker):
        return Cause.MOVE_TARGET_SILENT, {}
    # The controller does not learn that the log directory of a new replica fails. The replica reports no end offset.
    failed = facts.failed_dirs(broker)
    if broker in case.seen.offline_replicas or (failed and case.lag_of(broker) is None):
        return Cause.MOVE_TARGET_LOG_DIR_FAILED, {"dirs": ", ".join(failed)}
    if full := facts.full_dirs(broker):
        return Cause.MOVE_TARGET_DISK_FULL, {"dirs": ", ".join(full)}
    if throttle := case.throttle_of(broker):
        return Cause.MOVE_THROTTLED, throttle
    return Cause.MOVE_CATCHING_UP, {}
