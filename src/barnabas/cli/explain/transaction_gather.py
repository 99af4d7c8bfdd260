"""Facts about open transactions that hold back read_committed consumers, for explanations of single topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from barnabas.cli.explain.probe import PROBE_TIMEOUT_S
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import latest_offsets
from barnabas.client.transaction_admin import (
    OpenTransaction,
    TransactionAdmin,
    TransactionView,
    is_hanging,
)
from barnabas.client.view import ClusterView
from barnabas.errors import ApiError
from barnabas.explain.facts import OpenTransactionFacts
from barnabas.model import TopicPartition


def gather_open_transactions(
    cluster: Cluster, view: ClusterView, topics: Iterable[str], silent: Collection[int]
) -> dict[TopicPartition, OpenTransactionFacts]:
    """Return the oldest open transaction of each partition that has one.

    Only partitions whose last stable offset is below the high watermark are asked for their producers. Returns nothing
    if a broker does not support that, or does not answer.
    """
    led = [
        TopicPartition(name, each.partition)
        for name in topics
        for each in view.topics[name].partitions
        if not each.is_offline and each.leader in view.brokers and each.leader not in silent
    ]
    try:
        with cluster.with_new_connections(timeout_s=PROBE_TIMEOUT_S) as own:
            # The stable ends are read first: a transaction that ends between the lookups is not reported.
            stable = latest_offsets(own, led, committed=True)
            ends = latest_offsets(own, led)
            held_back = [each for each in led if stable[each] < ends[each]]
            if not held_back:
                return {}
            admin = TransactionAdmin(own)
            opened = admin.open_transactions(held_back)
            producer_ids = {each.producer_id for each in opened}
            try:
                known = admin.known_transactions(producer_ids)
            except ApiError:
                # A coordinator is missing, so it is unknown whether its transactions hang.
                known = admin.available_transactions(producer_ids)
                opened = [each for each in opened if not is_hanging(each, known)]
    except ApiError:
        return {}
    found: dict[TopicPartition, OpenTransactionFacts] = {}
    for each in opened:  # ordered by start offset
        if each.start_offset < ends[each.partition]:
            found.setdefault(each.partition, open_facts(each, ends[each.partition], known))
    return found


def open_facts(
    opened: OpenTransaction, end: int, known: Mapping[int, TransactionView]
) -> OpenTransactionFacts:
    view = known.get(opened.producer_id)
    is_known = not is_hanging(opened, known)
    return OpenTransactionFacts(
        start_offset=opened.start_offset,
        waiting=max(0, end - opened.start_offset),
        producer_id=opened.producer_id,
        last_record_ms=opened.last_timestamp,
        transactional_id=None if view is None or not is_known else view.transactional_id,
        state="" if view is None or not is_known else view.state,
        start_ms=None if view is None or not is_known else view.start_ms,
        timeout_ms=0 if view is None or not is_known else view.timeout_ms,
    )
