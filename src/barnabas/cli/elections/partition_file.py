"""Files with partitions, in the format of kafka-leader-election. Without I/O.

{"partitions": [{"topic": "orders", "partition": 1}, {"topic": "clicks", "partition": 2}]}
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from barnabas.model import TopicPartition

INT32_END = 2**31


def parse_partition_file(text: str) -> list[TopicPartition]:
    """Return the partitions.

    Raises JSONDecodeError if the text is not JSON, and otherwise ValueError with Kafka's message.
    """
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError(f"Expected JSON object, received {json_text(content)}")
    if "partitions" not in content:
        raise ValueError('Replica election data is missing "partitions" field')
    items = content["partitions"]
    if not isinstance(items, list):
        raise ValueError(f"Expected JSON array, received {json_text(items)}")
    partitions = [parse_listed_partition(item) for item in items]
    duplicates = [str(each) for each, count in Counter(partitions).items() if count > 1]
    if duplicates:
        raise ValueError(
            f"Replica election data contains duplicate partitions: [{', '.join(duplicates)}]"
        )
    return partitions


def parse_listed_partition(item: Any) -> TopicPartition:
    if not isinstance(item, dict):
        raise ValueError(f"Expected JSON object, received {json_text(item)}")
    for field in ("topic", "partition"):
        if field not in item:
            raise ValueError(f"No such field exists: `{field}`")
    topic, number = item["topic"], item["partition"]
    if not isinstance(topic, str):
        raise ValueError(f"Expected `String` value, received {json_text(topic)}")
    if not isinstance(number, int) or isinstance(number, bool) or not abs(number) < INT32_END:
        raise ValueError(f"Expected `Integer` value, received {json_text(number)}")
    return TopicPartition(topic, number)


def json_text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
