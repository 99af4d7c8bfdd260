"""Split of a DataFrame into rows that meet expectations and records for a dead letter topic. Pure.

    good, dead = expect(orders, {"amount is positive": "order.amount > 0"}, dead_letter_topic="orders-dead")

Both results are lazy, so the split also works for streams. dead_letters.py has the names of the headers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, StringType, StructType

from barnabas.errors import ConfigError
from barnabas.spark.dead_letters import REASON_HEADER, SOURCE_HEADERS
from barnabas.spark.options import LEGAL_TOPIC
from barnabas.spark.schema import HEADERS, same_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def expect(
    rows: DataFrame,
    expectations: Mapping[str, Column | str],
    *,
    dead_letter_topic: str,
) -> tuple[DataFrame, DataFrame]:
    """Return the rows that meet all expectations, and dead-letter records for the others.

    `expectations` are conditions by name, each an SQL expression or a Column. A condition that is null is violated. A
    dead-letter record has the original key, value and headers, and headers with the names of all violated expectations
    and with topic, partition, offset and timestamp, as far as `rows` has these columns. Raises ConfigError.
    """
    check_expectations(expectations, dead_letter_topic)
    check_original_record(rows.schema)
    violations = [
        F.when(~F.coalesce(as_condition(condition), F.lit(False)), F.lit(name))
        for name, condition in expectations.items()
    ]
    reasons = F.concat_ws("; ", *violations)
    is_good = F.length(reasons) == 0
    columns = set(rows.columns)
    dead = rows.where(~is_good).select(
        F.lit(dead_letter_topic).alias("topic"),
        (F.col("key") if "key" in columns else F.lit(None)).cast("binary").alias("key"),
        F.col("value").cast("binary").alias("value"),
        headers_with(reasons, columns).alias("headers"),
    )
    return rows.where(is_good), dead


def headers_with(reasons: Column, columns: set[str]) -> Column:
    """Return the record's own headers followed by those of the dead letter."""
    added = [header(REASON_HEADER, reasons)]
    for column, name in SOURCE_HEADERS.items():
        if column in columns:
            value = F.col(column)
            added.append(header(name, F.unix_millis(value) if column == "timestamp" else value))
    if "headers" not in columns:
        return F.array(*added)
    return F.concat(F.coalesce(F.col("headers"), F.array().cast(HEADERS)), F.array(*added))


def header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def as_condition(condition: Column | str) -> Column:
    return F.expr(condition) if isinstance(condition, str) else condition


def check_expectations(expectations: Mapping[str, Column | str], topic: str) -> None:
    if not expectations:
        raise ConfigError("expectations", "is empty; pass {'amount is positive': 'amount > 0'}")
    if not all(expectations):
        raise ConfigError(
            "expectations", "a name is empty; it becomes the reason in the dead letter"
        )
    if not LEGAL_TOPIC.fullmatch(topic):
        why = f"{topic!r} is not a topic name; use letters, digits, dots, dashes and underscores"
        raise ConfigError("dead_letter_topic", why)


def check_original_record(schema: StructType) -> None:
    """Raise ConfigError if the rows do not have the record that they came from."""
    types = {field.name: field.dataType for field in schema.fields}
    hint = "keep the columns of the source, and add decoded ones with withColumn under other names"
    if "value" not in types:
        raise ConfigError("column value", f"is missing; {hint}")
    for name in ("key", "value"):
        if name in types and not isinstance(types[name], BinaryType | StringType):
            found = types[name].simpleString()
            raise ConfigError(f"column {name}", f"is {found}, not the bytes of the record; {hint}")
    if "headers" in types and not same_type(types["headers"], HEADERS):
        raise ConfigError("column headers", f"must be {HEADERS.simpleString()}; {hint}")
