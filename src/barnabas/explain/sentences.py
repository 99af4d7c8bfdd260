"""Sentences of every cause: what is wrong and why, and the next step. `text.py` fills the fields in braces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.explain.finding import Cause


class Sentences(NamedTuple):
    """Templates. `cause` says what is wrong and why, `next_step` what to do."""

    cause: str
    next_step: str


START = "{start_again}{see_what_waits}"
SEE_BROKER = "`barnabas brokers explain {broker}{servers}` shows its state"
RESUME = "check the process of {brokers} and its log: it may be paused, overloaded or out of memory"
FREE_SPACE = "free space on the disk, or shorten the retention; the broker continues by itself"
REPAIR = "repair or replace the disk, then restart {brokers}"
SEE_CONTROLLER = "`barnabas cluster explain{servers}` shows the state of the controller"
SEE_MOVES = "`barnabas reassign status{servers}` shows the progress"
ELECT = "`barnabas elect-leaders {selection_or_all}{servers}` elects it now"
UNTHROTTLE = "wait, or remove the limit: {unthrottle_commands}"
DESCRIBE_GROUP = (
    "`barnabas groups describe {group}{servers} --watch` shows the members and their lag"
)

SENTENCES: Mapping[Cause, Sentences] = {
    # partitions without a leader
    Cause.NEVER_LED: Sentences(
        "no leader: none of its replicas was ever online. They are assigned to {brokers}",
        "start {brokers}, or delete the topic: `barnabas topics delete {topic}{servers}`",
    ),
    Cause.ALL_REPLICAS_DOWN: Sentences("no leader: {all_replicas} down", START),
    Cause.IN_SYNC_REPLICAS_DOWN: Sentences(
        "no leader: {in_sync_replicas} down.{unclean_text}",
        "{start_again}{unclean_step}",
    ),
    Cause.IN_SYNC_LOG_DIR_FAILED: Sentences(
        "no leader: the log directory of the in-sync replica on {brokers} failed.{unclean_text}",
        "repair or replace the disk, then restart {brokers}{unclean_step}",
    ),
    Cause.ELECTION_PENDING: Sentences(
        "no leader yet: {brokers} can lead, and the controller has not elected it", SEE_CONTROLLER
    ),
    Cause.LEADER_SILENT: Sentences(
        "its leader, {brokers}, is registered but does not respond. {failover_text}",
        RESUME,
    ),
    # partitions with too few in-sync replicas
    Cause.FOLLOWER_DOWN: Sentences("{replicas_are_missing}: {the_brokers_are} down", START),
    Cause.FOLLOWER_STOPPED: Sentences(
        "{replicas_are_missing}: {the_brokers_were} shut down", START
    ),
    Cause.FOLLOWER_NEVER_SEEN: Sentences(
        "{replicas_are_missing}: no broker with this id has joined the cluster",
        "start {brokers}; `barnabas brokers list{servers}` shows the brokers that are alive",
    ),
    Cause.FOLLOWER_SHUTTING_DOWN: Sentences(
        "{replicas_are_missing}: {the_brokers_are} shutting down",
        "wait until it has stopped, then {start_again}; " + SEE_BROKER,
    ),
    Cause.FOLLOWER_SILENT: Sentences(
        "{replicas_are_missing}: {the_brokers_are} registered, but {do_not} respond", RESUME
    ),
    Cause.FOLLOWER_LOG_DIR_FAILED: Sentences(
        "{replicas_are_missing}: its log directory failed{in_dirs_or_shutdown}", REPAIR
    ),
    Cause.FOLLOWER_DISK_FULL: Sentences(
        "{replicas_are_missing}: its disk is full{in_dirs}, so it cannot copy records{lag_text}",
        FREE_SPACE,
    ),
    Cause.FOLLOWER_THROTTLED: Sentences(
        "{replicas_are_on} catching up{lag_text}. A throttle limits it to {rate} bytes/s",
        UNTHROTTLE,
    ),
    Cause.FOLLOWER_LAGGING: Sentences(
        "{replicas_are_on} catching up with the leader{lag_text}",
        "wait, and watch it with `barnabas topics describe {topic}{servers} --watch`",
    ),
    Cause.ISR_CHANGE_PENDING: Sentences(
        "the replica on {brokers} has all records, and the controller has not added it to the ISR yet",
        SEE_CONTROLLER,
    ),
    Cause.BELOW_MIN_ISR: Sentences(
        "writes with acks=all are rejected: {in_sync} in sync, min.insync.replicas={minimum}",
        "`barnabas partitions explain {partition}{servers}` shows why each replica is missing",
    ),
    Cause.MIN_ISR_ABOVE_REPLICAS: Sentences(
        "writes with acks=all are always rejected: min.insync.replicas={minimum}, but there {replicas_are}",
        "`barnabas configs alter --topic {topic} min.insync.replicas={replicas}{servers}` makes them possible",
    ),
    # transactions
    Cause.TRANSACTION_OPEN: Sentences(
        "read_committed consumers wait for the open transaction of {transactional_id}"
        " (producer {producer_id}){waiting_records}",
        "wait until its producer commits or aborts; its coordinator aborts it after {transaction_timeout}."
        " `barnabas transactions abort {transactional_id_argument}{servers}` aborts it now",
    ),
    Cause.TRANSACTION_ENDING: Sentences(
        "read_committed consumers wait for the end of the transaction of {transactional_id}"
        " (producer {producer_id}), which is {state}: its coordinator has not written all markers{waiting_records}",
        "`barnabas transactions describe {transactional_id_argument}{servers}` shows the partitions without a marker;"
        " check that each has a leader",
    ),
    Cause.TRANSACTION_HANGING: Sentences(
        "read_committed consumers wait for a transaction of producer {producer_id} at offset {start_offset} that no"
        " coordinator has: it never ends by itself{waiting_records}",
        "`barnabas transactions abort --partition {partition} --start-offset {start_offset}{servers}` aborts it",
    ),
    # leaders that are not the preferred replica
    Cause.PREFERRED_NOT_IN_SYNC: Sentences(
        "broker {leader} leads instead of {brokers}, the preferred leader, which is not in sync",
        "wait until {brokers} has caught up; " + SEE_BROKER,
    ),
    Cause.PREFERRED_REBALANCE_DISABLED: Sentences(
        "broker {leader} leads instead of {brokers}, the preferred leader: auto.leader.rebalance.enable is false",
        ELECT,
    ),
    Cause.PREFERRED_BELOW_THRESHOLD: Sentences(
        "broker {leader} leads instead of {brokers}, the preferred leader. Too few partitions are affected for an"
        " automatic election (leader.imbalance.per.broker.percentage={threshold})",
        ELECT,
    ),
    Cause.PREFERRED_WAITS_FOR_CHECK: Sentences(
        "broker {leader} leads instead of {brokers}, the preferred leader. The controller checks this every {interval}",
        "wait, or elect now: `barnabas elect-leaders {selection_or_all}{servers}`",
    ),
    # reassignments
    Cause.MOVE_TARGET_DOWN: Sentences(
        "the reassignment waits for {brokers}, a new replica, which is down",
        "{start_again}, or cancel the reassignment: `barnabas reassign cancel {moves}{servers}`",
    ),
    Cause.MOVE_TARGET_SILENT: Sentences(
        "the reassignment waits for {brokers}, a new replica, which does not respond", RESUME
    ),
    Cause.MOVE_TARGET_LOG_DIR_FAILED: Sentences(
        "the reassignment waits for {brokers}, a new replica, whose log directory failed{in_dirs}",
        REPAIR + ", or cancel the reassignment: `barnabas reassign cancel {moves}{servers}`",
    ),
    Cause.MOVE_TARGET_DISK_FULL: Sentences(
        "the reassignment waits for {brokers}, a new replica, whose disk is full{in_dirs}{lag_text}",
        FREE_SPACE + ". Or cancel the reassignment: `barnabas reassign cancel {moves}{servers}`",
    ),
    Cause.MOVE_THROTTLED: Sentences(
        "the reassignment waits for {brokers}, a new replica, which a throttle limits to {rate} bytes/s{lag_text}",
        UNTHROTTLE,
    ),
    Cause.MOVE_CATCHING_UP: Sentences(
        "the reassignment waits for {brokers}, a new replica, which is catching up with the leader{lag_text}",
        SEE_MOVES,
    ),
    Cause.MOVE_FINISHING: Sentences(
        "the reassignment is almost done: all new replicas are in sync, and the controller removes the old ones",
        SEE_MOVES,
    ),
    Cause.MOVE_REQUESTED: Sentences(
        "a reassignment is requested in /admin/reassign_partitions, and the controller has not started it",
        SEE_CONTROLLER,
    ),
    Cause.THROTTLE_LEFT: Sentences(
        "a replication throttle is set, but no partition is being reassigned. It slows down followers that catch up",
        "`barnabas reassign status{servers}` removes it",
    ),
    # deletions and topics
    Cause.DELETION_WAITS_FOR_BROKER: Sentences(
        "the deletion{by_text} waits for {brokers}: the replicas there can only be deleted when the broker is up",
        START,
    ),
    Cause.DELETION_WAITS_FOR_SILENT_BROKER: Sentences(
        "the deletion{by_text} waits for {brokers}: {the_brokers_are} registered, but {do_not} respond",
        RESUME,
    ),
    Cause.DELETION_WAITS_FOR_LOG_DIR: Sentences(
        "the deletion{by_text} waits for {brokers}: a log directory failed{in_dirs}", REPAIR
    ),
    Cause.DELETION_WAITS_FOR_CONTROLLER: Sentences(
        "the deletion{by_text} waits for a controller", SEE_CONTROLLER
    ),
    Cause.DELETION_DISABLED: Sentences(
        "the topic is marked for deletion, but delete.topic.enable is false: the controller removes the mark",
        "set delete.topic.enable=true on all brokers and restart them, then delete the topic again",
    ),
    Cause.DELETION_RUNNING: Sentences(
        "the topic is being deleted on {brokers}", "wait; this takes a few seconds"
    ),
    Cause.MARKER_WITHOUT_TOPIC: Sentences(
        "there is a mark for its deletion, but no such topic: the controller removes the mark",
        "`barnabas topics list{servers}` shows the topics",
    ),
    Cause.TOPIC_NAMES_COLLIDE: Sentences(
        "its name differs from {other} only in '.' and '_': their metrics have the same name",
        "copy the records to a topic with another name, then delete this one",
    ),
    Cause.TOPIC_ZNODE_INVALID: Sentences(
        "its znode {path} is invalid, and the controller ignores it: {why}",
        "write the znode again with a ZooKeeper client, or delete it",
    ),
    # brokers
    Cause.BROKER_DOWN: Sentences(
        "{brokers} is down: it is not registered{replica_text}", "{start_again}"
    ),
    Cause.BROKER_STOPPED: Sentences("{brokers} was shut down{replica_text}", "{start_again}"),
    Cause.BROKER_NEVER_SEEN: Sentences(
        "{brokers} has never joined the cluster{replica_text}",
        "start a broker with broker.id={broker}; `barnabas brokers list{servers}` shows the brokers that are alive",
    ),
    Cause.BROKER_SILENT: Sentences(
        "{brokers} is registered, but does not respond at {address}", RESUME
    ),
    Cause.BROKER_UNREACHABLE: Sentences(
        "{brokers} is registered, but nothing listens at {address}",
        "check advertised.listeners of {brokers}, and whether it has crashed: its registry session expires soon",
    ),
    Cause.BROKER_ADDRESS_SHARED: Sentences(
        "{brokers} advertises {address}, the same address as broker {other}: clients reach only one of them",
        "set advertised.listeners of {brokers} to its own address, then restart it",
    ),
    Cause.LOG_DIR_FAILED: Sentences("the log directory {dirs} of {brokers} failed", REPAIR),
    Cause.DISK_FULL: Sentences("the disk of {brokers} is full ({dirs})", FREE_SPACE),
    # the cluster
    Cause.NO_BROKER_ANSWERS: Sentences(
        "no broker answers{registered_text}",
        "start the brokers, or name other ones with -b HOST:PORT",
    ),
    Cause.NO_CONTROLLER: Sentences(
        "there is no controller: no leader is elected, and topics cannot be created or deleted",
        "check that the brokers reach the registry; `barnabas brokers list{servers}` shows which are alive",
    ),
    Cause.CONTROLLER_SILENT: Sentences(
        "the controller, {brokers}, does not respond: no leader is elected until its registry session expires",
        RESUME,
    ),
    Cause.CONTROLLER_STUCK: Sentences(
        "the controller, {brokers}, handles no events: its queue did not answer in time",
        "look for slow registry writes in the log of {brokers}; a restart moves the controller to another broker",
    ),
    Cause.REGISTRY_DOWN: Sentences(
        "{registry} does not answer {registry_clients}: {why}. Brokers that cannot reach it keep their leaders, but no"
        " leader is elected and no topic is changed",
        "check that a majority of the ZooKeeper servers is running",
    ),
    Cause.OFFSETS_TOPIC_IMPOSSIBLE: Sentences(
        "no group can commit offsets: __consumer_offsets cannot be created with"
        " offsets.topic.replication.factor={factor}, because only {registered_brokers}",
        "start more brokers, or lower offsets.topic.replication.factor on all brokers and restart them",
    ),
    # groups
    Cause.GROUP_EMPTY: Sentences(
        "no consumer is running{waiting_records}",
        "start a consumer of the group; " + DESCRIBE_GROUP,
    ),
    Cause.GROUP_WAITS_FOR_MEMBERS: Sentences(
        "a rebalance waits for {missing_members}.{timeout_text} Until then no member gets records",
        "check that these consumers call poll() often enough; " + DESCRIBE_GROUP,
    ),
    Cause.GROUP_WAITS_FOR_ASSIGNMENT: Sentences(
        "a rebalance waits for the assignment, which the first of {members} members computes",
        DESCRIBE_GROUP,
    ),
    Cause.COORDINATOR_OFFLINE: Sentences(
        "no broker coordinates the group: {coordinator_text}", "{coordinator_step}"
    ),
    Cause.COORDINATOR_SILENT: Sentences(
        "its coordinator, {brokers}, is registered but does not respond", RESUME
    ),
    Cause.COORDINATOR_LOADING: Sentences(
        "its coordinator is loading the group's offsets", "wait; this takes a few seconds"
    ),
    Cause.NEVER_COMMITTED: Sentences(
        "{member} reads it but has never committed an offset{lag_text}: after a restart it would start again",
        "check that the consumer commits: enable.auto.commit=true, or a call of commit()",
    ),
    Cause.NOT_COMMITTING: Sentences(
        "{member} is a member but commits no offsets any more{lag_text}",
        "check that the consumer still calls poll(), and that its processing does not hang",
    ),
    Cause.LAGGING: Sentences(
        "{member} commits offsets but does not keep up{lag_text}",
        DESCRIBE_GROUP + "; add consumers if the lag grows",
    ),
    Cause.OFFSET_BELOW_START: Sentences(
        "its committed offset {committed} is out of range: the log starts at {start}. {lag} records were deleted before"
        " the group read them",
        "stop the consumers, then `barnabas groups reset {group} {selection} --to-earliest --execute{servers}`",
    ),
    Cause.OFFSET_BEYOND_END: Sentences(
        "its committed offset {committed} is out of range: the log ends at {end}. The topic was created again, or lost"
        " records in an unclean election",
        "stop the consumers, then skip all records with"
        " `barnabas groups reset {group} {selection} --to-latest --execute{servers}`, or read all with --to-earliest",
    ),
    Cause.READS_OFFLINE_PARTITION: Sentences(
        "the group cannot read it: the partition has no leader{waits_text}",
        "`barnabas partitions explain {partition}{servers}` shows why",
    ),
    Cause.READS_FROM_SILENT_BROKER: Sentences(
        "the group cannot read it: its leader, {brokers}, is registered but does not respond",
        RESUME,
    ),
    Cause.READS_DELETED_TOPIC: Sentences(
        "the group has committed offsets of {topic_value}, which does not exist",
        "`barnabas topics list{servers}` shows the topics",
    ),
    Cause.IDLE_MEMBERS: Sentences(
        "{idle} of {members} members have no partition: there are only {assigned}",
        "stop the idle consumers, or add partitions to the topic",
    ),
}
