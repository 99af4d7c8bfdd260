"""Columns of the tables, with their types, for Parquet files: all files have the same columns, even without rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.history.words import Row

if TYPE_CHECKING:
    from pyarrow import Table

COLUMNS = {
    "elections": """
        epoch int32, elected_at time, controller int32, previous int32, cause string, vacant_ms int64,
        takeover_ms int64, resigned_at time, first_at time, last_at time, events int64""",
    "topics": """
        topic string, life int32, partitions int64, replication_factor int32, first_at time, last_at time,
        requested_at time, online_at time, online_after_ms int64, deletion string, deleted_at time,
        unavailable_ms int64, longest_outage_ms int64, partitions_affected int64, offline_now int64,
        leader_moves int64, slowest_ms int64, slowest_step string, slowest_broker int32""",
    "creations": """
        topic string, life int32, requested_at time, assigned_at time, online_at time, ms int64, partitions int64,
        replication_factor int32, by string, host string, automatic bool, cause string""",
    "deletions": """
        topic string, life int32, state string, requested_at time, started_at time, finished_at time, ms int64,
        waits_for brokers, waited_for brokers, by string, host string""",
    "outages": """
        topic string, life int32, partition int32, from time, until time, ms int64, unnoticed_ms int64, epoch int32,
        cause string, ended_by string, reason string, why string, lost_leader int32, incident int32""",
    "incidents": """
        incident int32, epoch int32, cause string, reason string, from time, until time, longest_ms int64,
        unnoticed_ms int64, topics int64, partitions int64, offline_now int64, why string, lost_leaders brokers""",
    "leader_moves": """
        topic string, life int32, partition int32, at time, before int32, after int32, leader_epoch int32,
        epoch int32, sequence int64, cause string, reason string""",
    "steps": """
        topic string, life int32, step string, broker int32, began_at time, ended_at time, ms int64, cause string""",
    "brokers": """
        broker int32, state string, from time, until time, ms int64, epoch int32, cause string""",
}


def column_types(table: str) -> dict[str, str]:
    """Return the names of the types of a table: those of Arrow, `time`, or `brokers` for a list of broker ids."""
    words = COLUMNS[table].replace(",", " ").split()
    return dict(zip(words[::2], words[1::2], strict=True))


def to_arrow(table: str, rows: Sequence[Row]) -> Table:
    import pyarrow

    own = {"time": pyarrow.timestamp("ms", "UTC"), "brokers": pyarrow.list_(pyarrow.int32())}
    types = column_types(table).items()
    schema = pyarrow.schema([(name, own.get(kind, kind)) for name, kind in types])
    return pyarrow.Table.from_pylist(rows, schema)
