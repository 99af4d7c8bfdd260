"""The page /metrics of a broker: reads the counters and the state of its components at each scrape.

The lines come from a generator, so that a page of many partitions is built in several turns of the event loop. An
empty line marks work without output. State may change between two turns, so each part copies what it iterates over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from barnabas import __version__, code_mode
from barnabas.broker.lazy_groups import LazyGroups
from barnabas.broker.lazy_transactions import LazyTransactions
from barnabas.broker.listener import Listeners
from barnabas.broker.log_cleaner import LogCleaner
from barnabas.broker.request_metrics import FOLLOWER_FETCH, TIME_PARTS, RequestMetrics
from barnabas.broker.security.logins import LoginCounts
from barnabas.controller.controller import Controller
from barnabas.errors import ErrorCode
from barnabas.metrics.exposition import Labels, Sample, family_lines, summary_lines
from barnabas.metrics.families import FAMILIES
from barnabas.metrics.histogram import (
    Buckets,
    RecentBuckets,
    Summary,
    merge_buckets,
    new_buckets,
    summarize,
    total_count,
    with_zeros,
)
from barnabas.model import BrokerId
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.wire.apis import ApiKey, api_name
from barnabas.world.ports import World

TOPIC_COUNTERS = {
    "messagesin": "records_in",
    "bytesin": "bytes_in",
    "bytesout": "bytes_out",
    "totalproducerequests": "produces",
    "failedproducerequests": "failed_produces",
    "totalfetchrequests": "fetches",
    "failedfetchrequests": "failed_fetches",
}
"""Kafka's name of a counter → attribute of TopicTraffic."""
REQUEST_TIMES = {
    "total": "totaltimems",
    "queue": "requestqueuetimems",
    "local": "localtimems",
    "remote": "remotetimems",
    "throttle": "throttletimems",
    "send": "responsesendtimems",
}
EVENT_TIMES = {
    "leaderelection": ("BrokersChanged",),
    "topicchange": ("TopicsChanged", "PartitionsModified"),
    "topicdeletion": ("TopicsMarked",),
    "isrchange": ("IsrsChanged", "AlterPartitionReceived"),
    "controlledshutdown": ("ControlledShutdownReceived",),
    "controllerchange": ("Startup", "ControllerChanged", "ControllerGone", "SessionOpened"),
    "partitionreassignment": (
        *("ReassignmentRequested", "ReassignmentsReceived", "ReassignmentsProgressed"),
    ),
    "autoleaderbalance": ("LeadersUnbalanced",),
    "manualleaderbalance": ("PreferredElectionRequested", "ElectLeadersReceived"),
    "logdirchange": ("LogDirFailed",),
    "leaderandisrresponsereceived": ("RequestAnswered",),
}
"""Kafka's name of a timer → events of the controller."""
PARTITION_COUNTS = (
    *("partitioncount", "leadercount", "underreplicatedpartitions"),
    *("underminisrpartitioncount", "atminisrpartitioncount", "offlinereplicacount"),
    "produceridcount",
)
LOGIN_COUNTERS = {
    "successful_authentication": "succeeded",
    "failed_authentication": "failed",
    "successful_reauthentication": "again",
    "failed_reauthentication": "failed_again",
    "successful_authentication_no_reauth": "without_reauth",
}
"""Kafka's name of a counter → attribute of LoginCounts."""
NO_LOGINS = LoginCounts()
TRANSACTION_STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort"),
    *("CompleteCommit", "CompleteAbort"),
)
STARTING, RUNNING, SHUTTING_DOWN = 1, 3, 6  # Kafka's broker states

PAGE_HEAD = "# Metrics of a Barnabas broker. Names are those of Kafka; see docs/metrics.md.\n"


class MonitoredBroker(Protocol):
    """The components of a broker. They are None before its start and after its stop."""

    world: World
    broker_id: BrokerId
    metrics: RequestMetrics
    is_started: bool
    is_stopping: bool
    replicas: ReplicaManager | None
    controller: Controller | None
    listeners: Listeners | None
    cleaner: LogCleaner | None
    groups: LazyGroups | None
    transactions: LazyTransactions | None


class PartitionTotals:
    """Numbers of partitions on this broker, and the sizes of their logs."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(PARTITION_COUNTS, 0)
        self.logs: list[tuple[Labels, int, int, int, int]] = []
        """Labels, and values in the order of LOG_GAUGES."""
        self.stable_lags: list[tuple[Labels, int]] = []
        """Labels of the partitions led here, and the number of offsets that read_committed consumers wait for."""

    def add(self, partition: Partition) -> None:
        counts = self.counts
        counts["partitioncount"] += 1
        log = partition.log
        if partition.is_offline:
            counts["offlinereplicacount"] += 1
            return
        labels = (partition.topic, str(partition.index))
        counts["produceridcount"] += len(log.producers.by_id)
        if partition.leader == partition.broker_id:
            in_sync, needed = len(partition.isr), log.config.min_insync_replicas
            counts["leadercount"] += 1
            counts["underreplicatedpartitions"] += in_sync < len(partition.replicas)
            counts["underminisrpartitioncount"] += not partition.has_enough_replicas()
            counts["atminisrpartitioncount"] += in_sync == needed
            self.stable_lags.append((labels, log.watermark - log.last_stable_offset))
        offsets = (log.log_end_offset, log.log_start_offset)
        self.logs.append((labels, log.size_bytes, *offsets, len(log.segments)))


LOG_GAUGES = ("size", "logendoffset", "logstartoffset", "numlogsegments")


class MetricsPage:
    """Builds the page. Keeps copies of histograms between scrapes, for quantiles of recent values."""

    def __init__(self, broker: MonitoredBroker) -> None:
        self.broker = broker
        self.recent: dict[tuple[str, str], RecentBuckets] = {}

    def lines(self, now: float) -> Iterator[str]:
        """Yield the lines of the page. `now` is the loop time."""
        broker = self.broker
        yield PAGE_HEAD
        yield from self.broker_lines()
        yield from self.request_lines(now)
        if broker.listeners is not None:
            yield from self.listener_lines(broker.listeners)
        if broker.replicas is not None:
            yield from self.traffic_lines(broker.replicas)
            yield from self.replica_lines(broker.replicas, now)
        if broker.cleaner is not None:
            yield from self.cleaner_lines(broker.cleaner)
        if broker.groups is not None:
            yield from self.group_lines(broker.groups)
        if broker.transactions is not None:
            yield from self.transaction_lines(broker.transactions)
        if broker.controller is not None:
            yield from self.controller_lines(broker.controller, now)

    def summary(self, name: str, label: str, buckets: Buckets, now: float) -> Summary:
        recent = self.recent.setdefault((name, label), RecentBuckets())
        return summarize(buckets, recent.find(buckets, now))

    # ---- broker and requests

    def broker_lines(self) -> Iterator[str]:
        broker = self.broker
        state = RUNNING if broker.is_started else SHUTTING_DOWN if broker.is_stopping else STARTING
        watchdog = broker.world.watchdog
        cluster = "" if broker.replicas is None else broker.replicas.metadata.cluster_id
        info = (__version__, str(code_mode), str(broker.broker_id), cluster)
        yield from plain_lines("kafka_server_kafkaserver_brokerstate", state)
        yield from family_lines(FAMILIES["barnabas_build_info"], [(info, 1)])
        yield from plain_lines("barnabas_eventloop_stalls_total", watchdog.stalls)
        yield from plain_lines(
            "barnabas_eventloop_longest_stall_seconds", float(watchdog.longest_stall_s)
        )

    def request_lines(self, now: float) -> Iterator[str]:
        metrics = self.broker.metrics
        by_name = times_by_name(metrics)
        requests = FAMILIES["kafka_network_requestmetrics_requests_total"]
        counts = {name: total_count(times[0]) for name, times in by_name.items()}
        yield from family_lines(requests, [((name,), count) for name, count in counts.items()])
        yield from family_lines(
            FAMILIES["kafka_network_requestmetrics_errors_total"],
            [
                ((request_name(api), ErrorCode(code).name), count)
                for (api, code), count in sorted(metrics.errors.items())
            ],
        )
        for at, part in enumerate(TIME_PARTS):
            name = f"kafka_network_requestmetrics_{REQUEST_TIMES[part]}"
            yield from summary_lines(
                FAMILIES[name],
                (
                    (
                        (api,),
                        self.summary(name, api, with_zeros(times[at], counts[api]), now),
                    )
                    for api, times in by_name.items()
                ),
            )

    def listener_lines(self, listeners: Listeners) -> Iterator[str]:
        connections = list(listeners.connections)
        memory = listeners.memory
        in_progress = memory.pending_responses
        open_by_listener = dict.fromkeys(listeners.accepted, 0)
        for connection in connections:
            open_by_listener[connection.listener_name] += 1
            in_progress += connection.in_progress is not None
            yield ""
        yield from plain_lines("kafka_network_requestchannel_requestqueuesize", in_progress)
        prefix = "kafka_server_socket_server_metrics_connection_"
        for name, values in (
            ("count", open_by_listener),
            ("creation_total", listeners.accepted),
        ):
            samples = [((listener,), count) for listener, count in values.items()]
            yield from family_lines(FAMILIES[prefix + name], samples)
        if listeners.security is not None:
            counts = listeners.security.logins.counts
            yield from login_lines(dict.fromkeys(listeners.listening, NO_LOGINS) | counts)
        yield from plain_lines(
            "barnabas_network_connections_refused_total", listeners.refused_count
        )
        yield from plain_lines("barnabas_network_requestbuffer_bytes", memory.used_bytes)
        yield from family_lines(
            FAMILIES["kafka_server_delayedoperationpurgatory_purgatorysize"],
            [
                (("Produce",), memory.pending_responses),
                (("Fetch",), self.broker.metrics.waiting_fetches),
            ],
        )

    # ---- topics and replicas

    def traffic_lines(self, replicas: ReplicaManager) -> Iterator[str]:
        traffic = replicas.traffic
        prefix = "kafka_server_brokertopicmetrics_"
        topics = sorted(traffic.topics.items())
        for name, attribute in TOPIC_COUNTERS.items():
            samples: Iterable[Sample] = (
                ((topic,), getattr(counters, attribute)) for topic, counters in topics
            )
            total: Sample = ((), traffic.total(attribute))
            yield from family_lines(FAMILIES[f"{prefix}{name}_total"], (total, *samples))
        for way in ("in", "out"):
            total_bytes = traffic.total(f"replication_bytes_{way}")
            yield from plain_lines(f"{prefix}replicationbytes{way}_total", total_bytes)

    def replica_lines(self, replicas: ReplicaManager, now: float) -> Iterator[str]:
        totals = PartitionTotals()
        for partition in list(replicas.partitions.values()):
            totals.add(partition)
            yield ""
        totals.counts["offlinereplicacount"] += len(replicas.offline)
        proposals = replicas.proposals
        counters = {
            "isrshrinks_total": proposals.shrinks,
            "isrexpands_total": proposals.expansions,
            "failedisrupdates_total": proposals.failures,
        }
        for name, count in (totals.counts | counters).items():
            yield from plain_lines(f"kafka_server_replicamanager_{name}", count)
        for at, name in enumerate(LOG_GAUGES, 1):
            family = FAMILIES[f"kafka_log_log_{name}"]
            yield from family_lines(family, ((row[0], row[at]) for row in totals.logs))  # type: ignore[misc]
        yield from family_lines(
            FAMILIES["kafka_cluster_partition_laststableoffsetlag"], totals.stable_lags
        )
        name = "kafka_log_logflushstats_logflushrateandtimems"
        flushes = self.summary(name, "", replicas.flushes.times, now)
        yield from summary_lines(FAMILIES[name], [((), flushes)])
        offline = len(replicas.logs.offline)
        yield from plain_lines("kafka_log_logmanager_offlinelogdirectorycount", offline)

    def cleaner_lines(self, cleaner: LogCleaner) -> Iterator[str]:
        yield from plain_lines("kafka_log_logcleaner_max_clean_time_secs", cleaner.last_seconds)
        yield from plain_lines(
            "kafka_log_logcleaner_cleaner_recopy_percent", cleaner.last_kept_percent
        )
        yield from plain_lines(
            "kafka_log_logcleanermanager_uncleanable_partitions_count", len(cleaner.failed_logs)
        )
        yield from plain_lines("barnabas_log_logcleaner_cleaned_bytes_total", cleaner.bytes_read)

    # ---- groups

    def group_lines(self, groups: LazyGroups) -> Iterator[str]:
        """Yield the groups that this broker coordinates. Their lag also needs the log end offsets of other brokers."""
        found = list(groups.components.coordinator.groups.values()) if groups.components else []
        prefix = "kafka_coordinator_group_groupmetadatamanager_"
        yield from plain_lines(f"{prefix}numgroups", len(found))
        yield from plain_lines(f"{prefix}numoffsets", sum(len(each.offsets) for each in found))
        yield from family_lines(
            FAMILIES["kafka_consumergroup_members"],
            [((each.group_id,), len(each.members)) for each in found],
        )
        offsets: Iterable[Sample] = (
            ((group.group_id, partition.topic, str(partition.partition)), value.offset)
            for group in found
            for partition, value in list(group.offsets.committed.items())
        )
        yield from family_lines(FAMILIES["kafka_consumergroup_current_offset"], offsets)

    def transaction_lines(self, transactions: LazyTransactions) -> Iterator[str]:
        """Yield the transactional ids that this broker coordinates, by state."""
        found = transactions.components
        by_state = dict.fromkeys(TRANSACTION_STATES, 0)
        if found is not None:
            for transaction in list(found.coordinator.transactions.values()):
                state = str(transaction.state)
                by_state[state] = by_state.get(state, 0) + 1
                yield ""
        yield from family_lines(
            FAMILIES["barnabas_coordinator_transaction_transactions"],
            [((state,), count) for state, count in by_state.items()],
        )
        times = None if found is None else found.loader.load_times
        average_s = times.total_s / times.count if times is not None and times.count else 0.0
        prefix = "kafka_server_transaction_coordinator_metrics_partition_load_time_"
        yield from plain_lines(f"{prefix}avg", average_s * 1000)
        yield from plain_lines(f"{prefix}max", 1000 * (times.longest_s if times else 0.0))
        yield from plain_lines(
            "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
            0 if found is None else len(found.coordinator.channels.waiting),
        )

    # ---- controller

    def controller_lines(self, controller: Controller, now: float) -> Iterator[str]:
        context, queue = controller.context, controller.queue
        imbalanced = 0
        for partition, state in list(context.leadership.items()):
            replicas = context.replicas(partition)
            imbalanced += bool(replicas) and state.leader != replicas[0]
            yield ""
        prefix = "kafka_controller_kafkacontroller_"
        for name, count in (
            ("activecontrollercount", int(controller.is_active)),
            ("activebrokercount", len(context.brokers)),
            ("globaltopiccount", len(context.all_topics)),
            ("globalpartitioncount", sum(map(len, context.assignments.values()))),
            ("offlinepartitionscount", len(context.partitions_with_offline_leader)),
            ("preferredreplicaimbalancecount", imbalanced),
            ("topicstodeletecount", len(context.topics_to_be_deleted)),
        ):
            yield from plain_lines(prefix + name, count)
        yield from plain_lines(
            "kafka_controller_controllerstats_uncleanleaderelections_total",
            controller.unclean_elections,
        )
        for kafka_name, events in EVENT_TIMES.items():
            name = f"kafka_controller_controllerstats_{kafka_name}rateandtimems"
            times = merge_buckets(
                queue.handling_times.get(event, new_buckets()) for event in events
            )
            yield from summary_lines(FAMILIES[name], [((), self.summary(name, "", times, now))])
        prefix = "kafka_controller_controllereventmanager_"
        yield from plain_lines(f"{prefix}eventqueuesize", len(queue.waiting))
        waits = self.summary(f"{prefix}eventqueuetimems", "", queue.queue_times, now)
        yield from summary_lines(FAMILIES[f"{prefix}eventqueuetimems"], [((), waits)])
        unanswered = sum(len(sender.requests) for sender in controller.channels.senders.values())
        yield from plain_lines(
            "kafka_controller_controllerchannelmanager_totalqueuesize", unanswered
        )


def login_lines(counts: Mapping[str, LoginCounts]) -> Iterator[str]:
    """Yield the logins of each listener. They are 0 for one without SASL."""
    for name, attribute in LOGIN_COUNTERS.items():
        family = FAMILIES[f"kafka_server_socket_server_metrics_{name}_total"]
        samples = [((each,), getattr(found, attribute)) for each, found in counts.items()]
        yield from family_lines(family, samples)
    expired = sum(each.expired for each in counts.values())
    yield from plain_lines("kafka_network_socketserver_expiredconnectionskilledcount", expired)


def plain_lines(name: str, value: float) -> Iterator[str]:
    """Yield the lines of a metric without labels."""
    return family_lines(FAMILIES[name], [((), value)])


def times_by_name(metrics: RequestMetrics) -> dict[str, list[Buckets]]:
    """Return the histograms by Kafka's name of the request. Fetches are counted together, and by kind."""
    by_api = {api: metrics.histograms(api) for api, times in enumerate(metrics.times) if times}
    found = {request_name(api): histograms for api, histograms in by_api.items()}
    fetches = [by_api[api] for api in (ApiKey.FETCH, FOLLOWER_FETCH) if api in by_api]
    if fetches:
        found["Fetch"] = [merge_buckets(parts) for parts in zip(*fetches, strict=True)]
    return dict(sorted(found.items()))


def request_name(api: int) -> str:
    if api == FOLLOWER_FETCH:
        return "FetchFollower"
    return "FetchConsumer" if api == ApiKey.FETCH else api_name(api)
