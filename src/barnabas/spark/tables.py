"""Topics as tables of Spark SQL: a temporary view for each, under the topic's own name.

    key value topic partition offset timestamp timestampType      as the source has them
    value_text                                                    the value as UTF-8
    value_json                                                    the value as a variant, null where it is not JSON

    select value_json:user.id::long, count(*) from orders group by 1

Spark does not read what a query does not use of the last two. `headers` are there if asked for. A name with dashes or
dots stands in backquotes: select * from `web-orders`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = "make_valid_utf8(cast(value as string))"
COLUMNS = ("*", f"{TEXT} as value_text", "try_parse_json(cast(value as string)) as value_json")

# Strings and comments hold no names of tables; what stands in backquotes is one name; words may begin with a digit.
TOKEN = re.compile(
    r"""  '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | --[^\n]* | /\*.*?\*/
        | `(?P<quoted>(?:[^`]|``)+)` | (?P<word>\w+) """,
    re.VERBOSE | re.DOTALL,
)
BARE = re.compile(r"\w+")


def register_topics(
    spark: SparkSession,
    topics: Iterable[str],
    bootstrap_servers: str,
    *,
    stream: bool = False,
    headers: bool = False,
    starting: str = "earliest",
    topic_ids: Path | None = None,
) -> None:
    for topic in topics:
        reader = (
            (spark.readStream if stream else spark.read)
            .format("barnabas")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("subscribe", topic)
            .option("startingOffsets", starting)
            .option("includeHeaders", str(headers).lower())
        )
        if topic_ids is not None:
            reader = reader.option("topicIdsLocation", str(topic_ids))
        rows = reader.load()
        rows.selectExpr(*COLUMNS).createOrReplaceTempView(quoted(topic))


def names_in(query: str) -> set[str]:
    """Every name a query could mean a table by.

    >>> sorted(names_in("select 'from x' from `web-orders` join users -- and y"))
    ['from', 'join', 'select', 'users', 'web-orders']
    """
    found = TOKEN.finditer(query)
    return {
        match["word"] or match["quoted"].replace("``", "`") for match in found if match.lastgroup
    }


def topics_in(query: str, topics: Iterable[str]) -> list[str]:
    """Those of the topics a query mentions. Spark does not tell upper from lower case; of two topics that differ in
    nothing else, the one written as in the query is meant."""
    names = names_in(query)
    lower = {name.lower() for name in names}
    meant: dict[str, str] = {}
    for topic in sorted(topics):
        if topic.lower() in lower and (topic in names or topic.lower() not in meant):
            meant[topic.lower()] = topic
    return sorted(meant.values())


def unquoted(query: str, topics: Iterable[str]) -> str | None:
    """A topic whose name needs backquotes and stands in the query without them."""
    bare = TOKEN.sub(lambda match: match[0] if match["word"] else " ", query)
    for topic in sorted(topics, key=len, reverse=True):
        where = rf"\b(?:from|join)\s+{re.escape(topic)}(?![\w.-])"
        if BARE.fullmatch(topic) is None and re.search(where, bare, re.IGNORECASE):
            return topic
    return None


def quoted(topic: str) -> str:
    return topic if BARE.fullmatch(topic) else f"`{topic}`"
