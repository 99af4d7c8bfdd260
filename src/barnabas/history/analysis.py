"""Analysis of the events: tables about topics and controllers. Each table is a DataFrame, built in small steps.

    elections      controllers: predecessor, time without a controller, duration of the takeover
    outages        times in which a partition had no leader
    incidents      outages with the same cause: a broker failure affects many partitions
    leader_moves   changes of the leader of a partition
    steps          waiting times: for the controller, an election, the response of a broker, the return of a broker
    creations      from a client's request until every partition had a leader
    deletions      from a client's request until the last replica was deleted, and the brokers that delay it
    topics         one row per life of a topic

Times are by the clocks of the controllers. After a broker failure, an outage starts when the controller notices it. If
a new controller finds a partition without a leader, the outage starts with the election of this controller.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from barnabas.history.reader import about_topics, millis, ordered_window, with_lives

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LIFE = ("topic", "life")
PARTITION = (*LIFE, "partition")
STUCK_MS = 30_000
"""A deletion that takes longer is stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The tables. Field names are the names of the Parquet files."""

    elections: DataFrame
    topics: DataFrame
    creations: DataFrame
    deletions: DataFrame
    outages: DataFrame
    incidents: DataFrame
    leader_moves: DataFrame
    steps: DataFrame


def analyse(events: DataFrame, now: datetime) -> Analysis:
    """Build all tables. `events` are the events of reader.py, checkpointed.

    In a row that is still ongoing, `ms` is the time until `now`, and the end is null.

    Tables that other tables are computed from are checkpointed. Otherwise Spark would plan them again for each use,
    which takes longer than the computation.
    """
    at_now = f.lit(now)
    lives = with_lives(about_topics(events)).localCheckpoint()
    elections = build_elections(events).localCheckpoint()
    creations = build_creations(lives).localCheckpoint()
    deletions = build_deletions(lives, at_now).localCheckpoint()
    outages = build_outages(lives, elections, at_now).localCheckpoint()
    leader_moves = build_leader_moves(lives).localCheckpoint()
    steps = build_steps(lives, creations, deletions, at_now).localCheckpoint()
    return Analysis(
        elections=elections,
        topics=build_topic_table(lives, creations, deletions, outages, leader_moves, steps),
        creations=creations,
        deletions=deletions,
        outages=outages,
        incidents=build_incidents(outages),
        leader_moves=leader_moves,
        steps=steps,
    )


# ---- controllers ----------------------------------------------------------------------------------------------


def build_elections(events: DataFrame) -> DataFrame:
    """Return one row per controller epoch. `vacant_ms` is the time without a controller before it. It is known only if
    the previous controller resigned, because a controller that crashes records nothing."""
    is_election = (f.col("what") == "controller") & f.col("after").isNotNull()
    is_resignation = (f.col("what") == "controller") & f.col("after").isNull()
    election = f.max(f.when(is_election, f.struct("at", "cause"))).over(Window.partitionBy("epoch"))
    is_caused_by_election = f.col("cause") == f.col("election.cause")
    by_epoch = Window.orderBy("epoch")
    return (
        events.withColumn("election", election)
        .groupBy("epoch")
        .agg(
            f.max("election.at").alias("elected_at"),
            f.max("election.cause").alias("cause"),
            f.max("broker").alias("controller"),
            f.max(f.when(is_caused_by_election, f.col("at"))).alias("settled_at"),
            f.max(f.when(is_resignation, f.col("at"))).alias("resigned_at"),
            f.min("at").alias("first_at"),
            f.max("at").alias("last_at"),
            f.count("*").alias("events"),
        )
        .withColumn("previous", f.lag("controller").over(by_epoch))
        .withColumn("vacant_ms", millis(f.lag("resigned_at").over(by_epoch), f.col("elected_at")))
        .withColumn("takeover_ms", millis(f.col("elected_at"), f.col("settled_at")))
        .select(
            *("epoch", "elected_at", "controller", "previous", "cause"),
            *("vacant_ms", "takeover_ms", "resigned_at", "first_at", "last_at", "events"),
        )
    )


# ---- partitions -----------------------------------------------------------------------------------------------


def build_outages(lives: DataFrame, elections: DataFrame, now: Column) -> DataFrame:
    """Return one row per outage of a partition. `until` is null for an ongoing one. `lost_leader` led before it.

    Offline 08:00:10.0, Online 08:00:10.4  →  from 08:00:10.0, until 08:00:10.4, 400 ms
    """
    one = ordered_window(*PARTITION)
    changes = (
        partition_states(lives, elections)
        .withColumn("was_ineligible", f.lag("is_down", 1, False).over(one))
        .where("is_down != was_ineligible")
        .withColumn("ended_at", f.lead("at").over(one))
        .withColumn("ended_by", f.lead("cause").over(one))
        .where("is_down")
    )
    # A new controller records an event for every partition without a leader. If it recorded none, the partition had a
    # leader again before the election, but the previous controller did not record it. The outage ends at the election.
    next_elected_at = f.lead("elected_at").over(Window.orderBy("epoch"))
    next_controllers = (
        lives.where("what = 'partition'")
        .groupBy(*PARTITION)
        .agg(f.max("epoch").alias("epoch"))
        .join(f.broadcast(elections.select("epoch", next_elected_at.alias("next_at"))), "epoch")
        .drop("epoch")
    )
    return (
        changes.join(next_controllers, list(PARTITION), "left")
        .withColumn("until", f.coalesce("ended_at", "next_at"))
        .withColumn("ms", millis(f.col("at"), f.coalesce("until", now)))
        .selectExpr(
            *(*PARTITION, "at as `from`", "until", "ms"),
            *("epoch", "cause", "ended_by", "why", "lost_leader"),
        )
    )


def build_incidents(outages: DataFrame) -> DataFrame:
    """Return one row per cause of outages. `until` is null if one of the outages is ongoing."""
    return outages.groupBy("epoch", "cause").agg(
        f.min("from").alias("from"),
        f.when(f.count("until") == f.count("*"), f.max("until")).alias("until"),
        f.max("ms").alias("longest_ms"),
        f.countDistinct("topic", "life").alias("topics"),
        f.count("*").alias("partitions"),
        f.sum(f.col("until").isNull().cast("int")).alias("offline_now"),
        f.max("why").alias("why"),
        f.array_sort(f.collect_set("lost_leader")).alias("lost_leaders"),
    )


def partition_states(lives: DataFrame, elections: DataFrame) -> DataFrame:
    """Return one row per event of a partition. `is_down` means that the partition has no leader but should have one.

    If a new controller finds a partition without a leader, it records only its attempt to elect one. An additional row
    marks such a partition as down since the election of the controller.
    """
    one = ordered_window(*PARTITION)
    earlier = one.rowsBetween(Window.unboundedPreceding, -1)
    leader = f.when(f.col("leader") >= 0, f.col("leader"))
    state = f.when(f.col("result") == "failed", f.col("before")).otherwise(f.col("after"))
    states = (
        lives.where("what = 'partition'")
        .withColumn("state", state)
        .withColumn("last_state", f.lag("state").over(one))
        .withColumn("last_epoch", f.lag("epoch").over(one))
        .withColumn("is_deleted_next", is_deleted_next())
        .withColumn("lost_leader", f.last(leader, ignorenulls=True).over(earlier))
    )
    never_led = "state = 'NewPartition' and result = 'failed'"
    recorded = states.withColumn(
        "is_down", f.expr(f"(state = 'OfflinePartition' and not is_deleted_next) or ({never_led})")
    )
    found_down = (
        states.where(
            "before = 'OfflinePartition' and not last_epoch <=> epoch and not is_deleted_next"
        )
        .where("after != 'NonExistentPartition' and not last_state <=> 'NonExistentPartition'")
        .join(f.broadcast(elections.select("epoch", "elected_at")), "epoch")
        .withColumn("at", f.coalesce("elected_at", "at"))
        .withColumn("sequence", f.lit(0).cast("long"))
        .withColumn("is_down", f.lit(True))
    )
    columns = (*PARTITION, "epoch", "sequence", "at", "cause", "why", "is_down", "lost_leader")
    return recorded.select(*columns).unionByName(found_down.select(*columns))


def is_deleted_next() -> Column:
    """Return whether the next event has the same cause and deletes the partition. This is not an outage."""
    one = ordered_window(*PARTITION)
    return f.coalesce(
        (f.lead("after").over(one) == "NonExistentPartition")
        & (f.lead("cause").over(one) == f.col("cause"))
        & (f.lead("epoch").over(one) == f.col("epoch")),
        f.lit(False),
    )


def build_leader_moves(lives: DataFrame) -> DataFrame:
    """Return one row per change of the leader, also if there was no leader in between."""
    led = lives.where("what = 'partition' and result = 'done' and leader >= 0")
    return (
        led.withColumn("before", f.lag("leader").over(ordered_window(*PARTITION)))
        .where("before is not null and before != leader")
        .select(*PARTITION, "at", "before", f.col("leader").alias("after"), "leader_epoch", "cause")
    )


# ---- requests of clients --------------------------------------------------------------------------------------


def build_creations(lives: DataFrame) -> DataFrame:
    """Return one row per life whose start is in the history.

    `online_at` is null until every initial partition has had a leader. Partitions that were added later do not count.
    """
    is_request = (f.col("what") == "topic") & (f.col("after") == "created")
    is_birth = f.expr("what = 'partition' and after = 'NewPartition' and result = 'done'")
    is_online = f.expr("what = 'partition' and after = 'OnlinePartition' and result = 'done'")
    birth = f.struct("epoch", "sequence", "at", "cause", f.size("replicas").alias("replicas"))
    request = f.struct(f.coalesce("asked_at", "at").alias("at"), "by", "host", "automatic")
    # A request has no partition and therefore its own row.
    partitions = (
        lives.where(is_request | is_birth | is_online)
        .groupBy(*PARTITION)
        .agg(
            f.min(f.when(is_request, request)).alias("request"),
            f.min(f.when(is_birth, birth)).alias("birth"),
            f.min(f.when(is_online, f.col("at"))).alias("online_at"),
        )
        .withColumn("first", f.min("birth").over(Window.partitionBy(*LIFE)))
    )
    is_initial = (f.col("birth.epoch") == f.col("first.epoch")) & (
        f.col("birth.cause") == f.col("first.cause")
    )
    count = f.count(f.when(is_initial, 1))
    online = f.when(is_initial, f.col("online_at"))
    return (
        partitions.groupBy(*LIFE)
        .agg(
            f.max("request").alias("request"),
            f.max("first").alias("first"),
            count.alias("partitions"),
            f.when(f.count(online) == count, f.max(online)).alias("online_at"),
        )
        .where("first is not null")
        .withColumn("requested_at", f.least("request.at", "first.at"))
        .withColumn("ms", millis(f.col("requested_at"), f.col("online_at")))
        .selectExpr(
            *(*LIFE, "requested_at", "first.at as assigned_at", "online_at", "ms", "partitions"),
            "first.replicas as replication_factor",
            *("request.by", "request.host", "request.automatic", "first.cause"),
        )
    )


def build_deletions(lives: DataFrame, now: Column) -> DataFrame:
    """Return one row per life that was marked for deletion.

    `state` is done, running or stuck. `waits_for` are the brokers that have not deleted their replicas yet.
    `waited_for` are the brokers that could not delete a replica at first: they were down, or the deletion failed.
    """
    marked = lives.where(
        "(what = 'topic' and after = 'marked for deletion')"
        " or (what = 'partition' and after = 'NonExistentPartition' and result = 'done')"
    )
    began = marked.groupBy(*LIFE).agg(
        f.min(f.coalesce("asked_at", "at")).alias("requested_at"),
        f.min(f.when(f.col("what") == "partition", f.col("at"))).alias("started_at"),
        *(
            f.max(f.when(f.col("what") == "topic", f.col(name))).alias(name)
            for name in ("by", "host")
        ),
    )
    # A replica may have been removed earlier, while the topic continued with others.
    order = f.struct("epoch", "sequence")
    start = f.min(f.when(f.col("after") == "NonExistentPartition", order)).over(
        Window.partitionBy(*LIFE)
    )
    replicas = (
        lives.withColumn("start", start)
        .where("what = 'replica' and result = 'done'")
        .where(order > f.col("start"))
        .groupBy(*PARTITION, "replica")
        .agg(
            f.max_by("after", order).alias("state"),
            f.max(f.col("after") == "ReplicaDeletionIneligible").alias("was_ineligible"),
            f.max(f.when(f.col("after") == "NonExistentReplica", f.col("at"))).alias("gone_at"),
        )
    )
    is_left = ~f.col("state").isin("ReplicaDeletionSuccessful", "NonExistentReplica")
    ended = replicas.groupBy(*LIFE).agg(
        f.max("gone_at").alias("finished_at"),
        collect_replica_brokers(is_left).alias("waits_for"),
        collect_replica_brokers(f.col("was_ineligible")).alias("waited_for"),
    )
    took = millis(f.col("requested_at"), f.coalesce("finished_at", now))
    state = (
        f.when(f.col("finished_at").isNotNull(), "done")
        .when((f.size("waited_for") > 0) | (f.col("ms") > STUCK_MS), "stuck")
        .otherwise("running")
    )
    return (
        began.join(ended, list(LIFE), "left")
        .withColumn("ms", took)
        .withColumn("state", state)
        .select(
            *LIFE,
            *("state", "requested_at", "started_at", "finished_at", "ms"),
            *("waits_for", "waited_for", "by", "host"),
        )
    )


def collect_replica_brokers(condition: Column) -> Column:
    return f.array_sort(f.collect_set(f.when(condition, f.col("replica"))))


def build_steps(
    lives: DataFrame, creations: DataFrame, deletions: DataFrame, now: Column
) -> DataFrame:
    """Return one row per waiting time. `ended_at` is null if it is ongoing.

    the controller          from the client's request until the controller started
    an election             from the assignment until the last partition had a leader
    LeaderAndIsr …          from the controller's request until the broker's response
    the return of a broker  from the first deletion that the broker missed until it deleted its last replica
    """
    marked = deletions.where("started_at is not null").withColumn("cause", f.lit("DeleteTopics"))
    requests = lives.where("what = 'request'")
    is_ineligible = f.col("after") == "ReplicaDeletionIneligible"
    is_deleted = f.col("after") == "ReplicaDeletionSuccessful"
    returns = (
        lives.where("what = 'replica' and result = 'done'")
        .groupBy(*LIFE, "replica")
        .agg(
            f.min(f.when(is_ineligible, f.col("at"))).alias("began_at"),
            f.max(f.when(is_deleted, f.col("at"))).alias("ended_at"),
            f.min(f.when(is_ineligible, f.col("cause"))).alias("cause"),
        )
        .where("began_at is not null")
    )
    no_broker = "cast(null as int)"
    steps = (
        (creations, "'the controller'", no_broker, "requested_at", "assigned_at"),
        (creations, "'an election'", no_broker, "assigned_at", "online_at"),
        (marked, "'the controller'", no_broker, "requested_at", "started_at"),
        (requests, "substring_index(id, ' ', 1)", "`to`", "at", "answered_at"),
        (returns, "'the return of a broker'", "replica", "began_at", "ended_at"),
    )
    selected = (
        rows.selectExpr(
            *(*LIFE, f"{step} as step", f"{broker} as broker"),
            *(f"{began_at} as began_at", f"{ended_at} as ended_at", "cause"),
        )
        for rows, step, broker, began_at, ended_at in steps
    )
    united = reduce(lambda one, other: one.unionByName(other), selected)
    return united.withColumn("ms", millis(f.col("began_at"), f.coalesce("ended_at", now)))


# ---- summary --------------------------------------------------------------------------------------------------


def build_topic_table(
    lives: DataFrame,
    creations: DataFrame,
    deletions: DataFrame,
    outages: DataFrame,
    leader_moves: DataFrame,
    steps: DataFrame,
) -> DataFrame:
    """Return one row per life of a topic: a summary of the other tables."""
    known = lives.groupBy(*LIFE).agg(
        f.countDistinct("partition").alias("partitions"),
        f.max(f.size("replicas")).alias("replication_factor"),
        f.min("at").alias("first_at"),
        f.max("at").alias("last_at"),
    )
    down = outages.groupBy(*LIFE).agg(
        f.sum("ms").alias("unavailable_ms"),
        f.max("ms").alias("longest_outage_ms"),
        f.countDistinct("partition").alias("partitions_affected"),
        f.sum(f.col("until").isNull().cast("int")).alias("offline_now"),
    )
    moves = leader_moves.groupBy(*LIFE).agg(f.count("*").alias("leader_moves"))
    slowest = steps.groupBy(*LIFE).agg(
        f.max("ms").alias("slowest_ms"),
        f.max_by("step", "ms").alias("slowest_step"),
        f.max_by("broker", "ms").alias("slowest_broker"),
    )
    created = creations.selectExpr(*LIFE, "requested_at", "online_at", "ms as online_after_ms")
    deleted = deletions.selectExpr(*LIFE, "state as deletion", "finished_at as deleted_at")
    joined = known
    for table in (created, deleted, down, moves, slowest):
        joined = joined.join(table, list(LIFE), "left")
    offline_now = f.when(f.col("deleted_at").isNull(), f.col("offline_now")).otherwise(0)
    zeros = [name for name in (*down.columns, *moves.columns) if name not in LIFE]
    return joined.fillna(0, zeros).withColumn("offline_now", offline_now)
