"""Every metric of a broker: name, kind, labels and meaning. docs/metrics.md is generated from this table.

Names and labels are those of Kafka's metrics after the usual rules of Prometheus' JMX exporter, so that dashboards and
alerts for Kafka work. Metrics that Kafka does not have start with `barnabas_`.
"""

from __future__ import annotations

from barnabas.metrics.exposition import MetricFamily, MetricKind

COUNTER, GAUGE, SUMMARY = MetricKind

TOPIC = ("topic",)
PARTITION = ("topic", "partition")
REQUEST = ("request",)

# A table: name, kind, labels, meaning.
# fmt: off
BROKER_METRICS = (
    ("kafka_server_brokertopicmetrics_messagesin_total", COUNTER, TOPIC, "Records that producers have written"),
    ("kafka_server_brokertopicmetrics_bytesin_total", COUNTER, TOPIC, "Bytes of batches that producers have written"),
    ("kafka_server_brokertopicmetrics_bytesout_total", COUNTER, TOPIC, "Bytes of batches sent to consumers"),
    ("kafka_server_brokertopicmetrics_totalproducerequests_total", COUNTER, TOPIC,
        "Appends of valid batches, also failed ones"),
    ("kafka_server_brokertopicmetrics_failedproducerequests_total", COUNTER, TOPIC,
        "Batches that were not written, or not acknowledged in time"),
    ("kafka_server_brokertopicmetrics_totalfetchrequests_total", COUNTER, TOPIC,
        "Reads of a partition by consumers and followers"),
    ("kafka_server_brokertopicmetrics_failedfetchrequests_total", COUNTER, TOPIC, "Reads of a partition that failed"),
    ("kafka_server_brokertopicmetrics_replicationbytesin_total", COUNTER, (), "Bytes of batches fetched from leaders"),
    ("kafka_server_brokertopicmetrics_replicationbytesout_total", COUNTER, (), "Bytes of batches sent to followers"),
    ("kafka_network_requestmetrics_requests_total", COUNTER, REQUEST, "Requests served"),
    ("kafka_network_requestmetrics_errors_total", COUNTER, ("request", "error"),
        "Error codes in responses; a response may have several. Without NONE"),
    ("kafka_network_requestmetrics_totaltimems", SUMMARY, REQUEST,
        "Time from reading a request until its response is handed to the socket, in ms"),
    ("kafka_network_requestmetrics_requestqueuetimems", SUMMARY, REQUEST,
        "Time that a request waits for others that the broker reads at the same time, in ms"),
    ("kafka_network_requestmetrics_localtimems", SUMMARY, REQUEST, "Time that the broker works on a request, in ms"),
    ("kafka_network_requestmetrics_remotetimems", SUMMARY, REQUEST,
        "Time that a request waits for other brokers, or a fetch for records, in ms"),
    ("kafka_network_requestmetrics_throttletimems", SUMMARY, REQUEST,
        "Time that a quota delays the next request of the connection, in ms"),
    ("kafka_network_requestmetrics_responsesendtimems", SUMMARY, REQUEST,
        "Time that a response waits for a slow client, in ms; not part of the total time"),
    ("kafka_network_requestchannel_requestqueuesize", GAUGE, (), "Requests in progress"),
    ("kafka_server_socket_server_metrics_connection_count", GAUGE, ("listener",), "Open connections"),
    ("kafka_server_socket_server_metrics_connection_creation_total", COUNTER, ("listener",), "Connections accepted"),
    ("kafka_server_socket_server_metrics_successful_authentication_total", COUNTER, ("listener",), "Logins with SASL"),
    ("kafka_server_socket_server_metrics_failed_authentication_total", COUNTER, ("listener",),
        "Failed logins with SASL; also connections that did not log in in time"),
    ("kafka_server_socket_server_metrics_successful_reauthentication_total", COUNTER, ("listener",),
        "Logins again on a connection whose login expires"),
    ("kafka_server_socket_server_metrics_failed_reauthentication_total", COUNTER, ("listener",),
        "Failed logins again on a connection whose login expires"),
    ("kafka_server_socket_server_metrics_successful_authentication_no_reauth_total", COUNTER, ("listener",),
        "Logins of clients that cannot log in again on the same connection"),
    ("kafka_network_socketserver_expiredconnectionskilledcount", GAUGE, (),
        "Connections closed because the client did not log in again in time"),
    ("barnabas_network_connections_refused_total", COUNTER, (), "Connections over a limit, closed at once"),
    ("barnabas_network_requestbuffer_bytes", GAUGE, (), "Memory of large requests (queued.max.request.bytes)"),
    ("kafka_server_delayedoperationpurgatory_purgatorysize", GAUGE, ("delayedOperation",),
        "Requests that wait: Produce for replicas or an fsync, Fetch for records"),
    ("kafka_server_kafkaserver_brokerstate", GAUGE, (), "1 starting, 3 running, 6 shutting down"),
    ("barnabas_build_info", GAUGE, ("version", "mode", "broker", "cluster"),
        "1; the labels have the version, compiled or interpreted, and the ids of the broker and the cluster"),
    ("barnabas_eventloop_stalls_total", COUNTER, (), "Times that the event loop was blocked for a second or longer"),
    ("barnabas_eventloop_longest_stall_seconds", GAUGE, (), "Longest time that the event loop was blocked"),
)
REPLICA_METRICS = (
    ("kafka_server_replicamanager_partitioncount", GAUGE, (), "Partitions with a replica on this broker"),
    ("kafka_server_replicamanager_leadercount", GAUGE, (), "Partitions that this broker leads"),
    ("kafka_server_replicamanager_underreplicatedpartitions", GAUGE, (),
        "Partitions that this broker leads with replicas out of sync"),
    ("kafka_server_replicamanager_underminisrpartitioncount", GAUGE, (),
        "Partitions that this broker leads with fewer than min.insync.replicas: acks=all fails"),
    ("kafka_server_replicamanager_atminisrpartitioncount", GAUGE, (),
        "Partitions that this broker leads with exactly min.insync.replicas"),
    ("kafka_server_replicamanager_offlinereplicacount", GAUGE, (), "Replicas in failed log directories"),
    ("kafka_server_replicamanager_isrshrinks_total", COUNTER, (), "ISRs that lost a member, of partitions led here"),
    ("kafka_server_replicamanager_isrexpands_total", COUNTER, (), "ISRs that got a member, of partitions led here"),
    ("kafka_server_replicamanager_failedisrupdates_total", COUNTER, (), "ISR changes that the controller rejected"),
    ("kafka_server_replicamanager_produceridcount", GAUGE, (), "Producer ids in the logs of this broker"),
    ("kafka_log_log_size", GAUGE, PARTITION, "Size of a log in bytes"),
    ("kafka_log_log_logendoffset", GAUGE, PARTITION, "Offset of the next record"),
    ("kafka_log_log_logstartoffset", GAUGE, PARTITION, "Offset of the first record"),
    ("kafka_log_log_numlogsegments", GAUGE, PARTITION, "Segments of a log"),
    ("kafka_log_logflushstats_logflushrateandtimems", SUMMARY, (), "Duration of fsyncs of logs, in ms"),
    ("kafka_log_logmanager_offlinelogdirectorycount", GAUGE, (), "Failed log directories"),
    ("kafka_log_logcleaner_max_clean_time_secs", GAUGE, (), "Duration of the last compaction of a log"),
    ("kafka_log_logcleaner_cleaner_recopy_percent", GAUGE, (), "Bytes kept by the last compaction, in percent"),
    ("kafka_log_logcleanermanager_uncleanable_partitions_count", GAUGE, (), "Logs with a corrupt batch, not compacted"),
    ("barnabas_log_logcleaner_cleaned_bytes_total", COUNTER, (), "Bytes read by compactions"),
)
GROUP_METRICS = (
    ("kafka_coordinator_group_groupmetadatamanager_numgroups", GAUGE, (), "Groups that this broker coordinates"),
    ("kafka_coordinator_group_groupmetadatamanager_numoffsets", GAUGE, (), "Committed offsets of these groups"),
    ("kafka_consumergroup_members", GAUGE, ("consumergroup",), "Members of a group; served by its coordinator"),
    ("kafka_consumergroup_current_offset", GAUGE, ("consumergroup", *PARTITION),
        "Committed offset of a group; served by its coordinator"),
)
TRANSACTION_METRICS = (
    ("kafka_cluster_partition_laststableoffsetlag", GAUGE, PARTITION,
        "Offsets between the last stable offset and the high watermark of a partition led here: read_committed "
        "consumers wait for these records"),
    ("barnabas_coordinator_transaction_transactions", GAUGE, ("state",),
        "Transactional ids that this broker coordinates, by state. Ongoing: a transaction is open"),
    ("kafka_server_transaction_coordinator_metrics_partition_load_time_avg", GAUGE, (),
        "Average time to load a partition of __transaction_state, in ms, since the start"),
    ("kafka_server_transaction_coordinator_metrics_partition_load_time_max", GAUGE, (),
        "Longest time to load a partition of __transaction_state, in ms, since the start"),
    ("kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize", GAUGE, (),
        "Transactions whose markers are sent again: a partition has no leader, or an attempt failed"),
)
CONTROLLER_METRICS = (
    ("kafka_controller_kafkacontroller_activecontrollercount", GAUGE, (), "1 on the controller, 0 on other brokers"),
    ("kafka_controller_kafkacontroller_activebrokercount", GAUGE, (), "Registered brokers; 0 on other brokers"),
    ("kafka_controller_kafkacontroller_globaltopiccount", GAUGE, (), "Topics of the cluster; 0 on other brokers"),
    ("kafka_controller_kafkacontroller_globalpartitioncount", GAUGE, (),
        "Partitions of the cluster; 0 on other brokers"),
    ("kafka_controller_kafkacontroller_offlinepartitionscount", GAUGE, (),
        "Partitions without a leader; 0 on other brokers"),
    ("kafka_controller_kafkacontroller_preferredreplicaimbalancecount", GAUGE, (),
        "Partitions that are not led by their first replica; 0 on other brokers"),
    ("kafka_controller_kafkacontroller_topicstodeletecount", GAUGE, (), "Topics marked for deletion"),
    ("kafka_controller_controllerstats_uncleanleaderelections_total", COUNTER, (), "Unclean leader elections"),
    ("kafka_controller_controllerstats_leaderelectionrateandtimems", SUMMARY, (),
        "Handling of changed brokers, with its leader elections, in ms"),
    ("kafka_controller_controllerstats_topicchangerateandtimems", SUMMARY, (),
        "Handling of new topics and partitions, in ms"),
    ("kafka_controller_controllerstats_topicdeletionrateandtimems", SUMMARY, (), "Handling of topic deletions, in ms"),
    ("kafka_controller_controllerstats_isrchangerateandtimems", SUMMARY, (), "Handling of ISR changes, in ms"),
    ("kafka_controller_controllerstats_controlledshutdownrateandtimems", SUMMARY, (),
        "Handling of controlled shutdowns, in ms"),
    ("kafka_controller_controllerstats_controllerchangerateandtimems", SUMMARY, (),
        "Elections and takeovers of a controller, in ms"),
    ("kafka_controller_controllerstats_partitionreassignmentrateandtimems", SUMMARY, (),
        "Handling of reassignments, in ms"),
    ("kafka_controller_controllerstats_autoleaderbalancerateandtimems", SUMMARY, (),
        "Moves of leaders to preferred replicas, in ms"),
    ("kafka_controller_controllerstats_manualleaderbalancerateandtimems", SUMMARY, (),
        "Handling of requested elections, in ms"),
    ("kafka_controller_controllerstats_logdirchangerateandtimems", SUMMARY, (),
        "Handling of failed log directories, in ms"),
    ("kafka_controller_controllerstats_leaderandisrresponsereceivedrateandtimems", SUMMARY, (),
        "Handling of brokers' responses, in ms"),
    ("kafka_controller_controllereventmanager_eventqueuesize", GAUGE, (), "Events that wait for the controller"),
    ("kafka_controller_controllereventmanager_eventqueuetimems", SUMMARY, (),
        "Time that an event waits for the controller, in ms"),
    ("kafka_controller_controllerchannelmanager_totalqueuesize", GAUGE, (),
        "Requests of the controller that brokers have not answered"),
)
# fmt: on

FAMILIES: dict[str, MetricFamily] = {
    row[0]: MetricFamily(*row)
    for row in (
        *BROKER_METRICS,
        *REPLICA_METRICS,
        *GROUP_METRICS,
        *TRANSACTION_METRICS,
        *CONTROLLER_METRICS,
    )
}
