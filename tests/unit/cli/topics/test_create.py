from __future__ import annotations

import pytest

from barnabas.cli.topics.create import created_text, parse_assignment, parse_topic_configs
from barnabas.errors import ConfigError


def test_configs_are_key_value_pairs() -> None:
    assert parse_topic_configs(("a.b=1", "c=x=y")) == {"a.b": "1", "c": "x=y"}
    for wrong in ("a", "=1"):
        with pytest.raises(ConfigError, match="KEY=VALUE"):
            parse_topic_configs((wrong,))


def test_assignment_lists_brokers_per_partition() -> None:
    assert parse_assignment("0:1:2,1:2:0") == ((0, 1, 2), (1, 2, 0))
    for wrong in ("a", "0:,1", "0;1"):
        with pytest.raises(ConfigError, match="0:1:2,1:2:0"):
            parse_assignment(wrong)


def test_created_text_shows_counts() -> None:
    document = {
        "topic": "a",
        "existed": False,
        "dry_run": True,
        "partitions": 1,
        "replication_factor": 3,
    }
    assert created_text(document) == "would create topic a: 1 partition, replication factor 3"
    assert created_text({**document, "dry_run": False, "partitions": None}) == "created topic a"
    assert created_text({**document, "existed": True}) == "topic a exists already"
