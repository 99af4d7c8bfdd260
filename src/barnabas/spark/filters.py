"""Filters of a batch query, used to read fewer offsets. Pure.

    where topic = 'orders' and partition in (0, 1) and offset < 10 and timestamp >= '2026-11-01'

Conditions on topic and partition exclude partitions. Conditions on offset, and lower bounds of timestamp, shorten their
ranges. An upper bound of timestamp does not, because later records may have earlier timestamps. Spark applies every
filter to the rows as well, so a filter that is not understood here costs time but is not an error.

Filter pushdown is off by default, because of a bug in Spark 4.3: Spark stores the planned ranges in the DataFrame. If
one DataFrame or view is used twice with different filters, both uses get the ranges of one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import eq, ge, gt, le, lt
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from barnabas.model import TopicPartition

COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: eq,
    GreaterThan: gt,
    GreaterThanOrEqual: ge,
    LessThan: lt,
    LessThanOrEqual: le,
    In: lambda found, values: found in values,
}
OFFSET_MAX = 2**63 - 1
FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A filter that compares a column with a value that is not null."""

    column: str
    kind: type[Filter]
    value: Any

    @property
    def least(self) -> Any:
        """The smallest value that can fulfil the condition, or None if there is no lower bound."""
        if self.kind is In:
            return min(self.value)
        return self.value if self.kind in (EqualTo, GreaterThan, GreaterThanOrEqual) else None

    @property
    def greatest(self) -> Any:
        if self.kind is In:
            return max(self.value)
        return self.value if self.kind in (EqualTo, LessThan, LessThanOrEqual) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedFilters:
    """The conditions that all rows of a query must fulfil."""

    conditions: tuple[Condition, ...] = ()

    def includes(self, partition: TopicPartition) -> bool:
        found = {"topic": partition.topic, "partition": partition.partition}
        return all(
            COMPARISONS[each.kind](found[each.column], each.value)
            for each in self.conditions
            if each.column in found
        )

    def offsets(self) -> tuple[int, int]:
        """Return the first offset that can match, and the last one."""
        found = [each for each in self.conditions if each.column == "offset"]
        return (
            max((each.least for each in found if each.least is not None), default=0),
            min((each.greatest for each in found if each.greatest is not None), default=OFFSET_MAX),
        )

    def least_timestamp(self) -> int | None:
        """Return the lower bound of timestamps in milliseconds, rounded down, or None.

        A bound below 0 is left out: brokers cannot look it up, and would skip records without timestamp (-1).
        """
        bounds = [each.least for each in self.conditions if each.column == "timestamp"]
        found = [(each - EPOCH) // timedelta(milliseconds=1) for each in bounds if each is not None]
        bound = max(found, default=-1)
        return bound if bound >= 0 else None


TYPES_OF_COLUMNS: dict[str, type] = {
    "topic": str,
    "partition": int,
    "offset": int,
    "timestamp": datetime,
}


def parse_filters(filters: Iterable[Filter]) -> PushedFilters:
    """Convert the filters of Spark. Those of other kinds and columns are left out."""
    found = (parse_condition(each) for each in filters)
    return PushedFilters(conditions=tuple(each for each in found if each is not None))


def parse_condition(pushed: Filter) -> Condition | None:
    if type(pushed) not in COMPARISONS:
        return None
    column = ".".join(pushed.attribute).lower()
    expected = TYPES_OF_COLUMNS.get(column)
    if expected is None:
        return None
    if isinstance(pushed, In):
        # A null in the list matches no row.
        value: Any = tuple(each for each in pushed.value if each is not None)
        if not value:
            return None
    else:
        value = pushed.value
    values = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(each, expected) for each in values):
        return None
    if any(isinstance(each, datetime) and each.tzinfo is None for each in values):
        return None
    return Condition(column=column, kind=type(pushed), value=value)
