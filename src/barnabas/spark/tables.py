"""Topics as tables of Spark SQL: one temporary view per topic, with the name of the topic.

    key value topic partition offset timestamp timestampType      the columns of the source
    value_text                                                    the value as UTF-8
    value_json                                                    the value as a variant, null where it is not JSON

    select value_json:user.id::long, count(*) from orders group by 1

Spark computes the last two columns only if a query uses them. The column `headers` is optional. Topic names with dashes
or dots need backquotes: select * from `web-orders`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.client.cluster import Cluster
from barnabas.spark.client_settings import cluster_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = "make_valid_utf8(cast(value as string))"
COLUMNS = ("*", f"{TEXT} as value_text", "try_parse_json(cast(value as string)) as value_json")

STRING_OR_COMMENT = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|--[^\n]*|/\*.*?\*/"""
"""Text of SQL that contains no names. Needs re.DOTALL."""
# Text in backquotes is one name. Words may begin with a digit.
TOKEN = re.compile(
    rf"{STRING_OR_COMMENT}|`(?P<quoted>(?:[^`]|``)+)`|(?P<word>\w+)",
    re.DOTALL,
)
PLAIN_NAME = re.compile(r"\w+")


def register_topics(
    spark: SparkSession,
    topics: Iterable[str],
    cluster: Cluster,
    *,
    stream: bool = False,
    headers: bool = False,
    starting: str = "earliest",
    topic_ids_location: Path | None = None,
) -> None:
    """Create a temporary view for each topic. `starting` and `topic_ids_location` are the options startingOffsets and
    topicIdsLocation of the source."""
    for topic in topics:
        reader = (
            (spark.readStream if stream else spark.read)
            .format("barnabas")
            .options(**cluster_options(cluster))
            .option("subscribe", topic)
            .option("startingOffsets", starting)
            .option("includeHeaders", str(headers).lower())
        )
        if topic_ids_location is not None:
            reader = reader.option("topicIdsLocation", str(topic_ids_location))
        reader.load().selectExpr(*COLUMNS).createOrReplaceTempView(quote_topic(topic))


def names_in(query: str) -> set[str]:
    """Return all words and quoted names of a query that could be table names.

    >>> sorted(names_in("select 'from x' from `web-orders` join users -- and y"))
    ['from', 'join', 'select', 'users', 'web-orders']
    """
    found = TOKEN.finditer(query)
    return {
        match["word"] or match["quoted"].replace("``", "`") for match in found if match.lastgroup
    }


def topics_in(query: str, topics: Iterable[str]) -> list[str]:
    """Return the topics that a query mentions. The comparison ignores case, as in Spark. If topics differ only in case,
    the one spelled as in the query is chosen, else the first in sort order."""
    names = names_in(query)
    lower = {name.lower() for name in names}
    matches: dict[str, str] = {}
    for topic in sorted(topics):
        if topic.lower() in lower and (topic in names or topic.lower() not in matches):
            matches[topic.lower()] = topic
    return sorted(matches.values())


def find_unquoted_topic(query: str, topics: Iterable[str]) -> str | None:
    """Return a topic that needs backquotes but follows FROM or JOIN without them, or None."""
    unquoted_text = TOKEN.sub(lambda match: match[0] if match["word"] else " ", query)
    for topic in sorted(topics, key=len, reverse=True):
        pattern = rf"\b(?:from|join)\s+{re.escape(topic)}(?![\w.-])"
        if PLAIN_NAME.fullmatch(topic) is None and re.search(pattern, unquoted_text, re.IGNORECASE):
            return topic
    return None


def quote_topic(topic: str) -> str:
    return topic if PLAIN_NAME.fullmatch(topic) else f"`{topic}`"
