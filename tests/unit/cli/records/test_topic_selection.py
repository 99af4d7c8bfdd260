from __future__ import annotations

import pytest

from barnabas.cli.records.topic_selection import compile_patterns, matching_topics
from barnabas.client.view import TopicView
from barnabas.errors import ConfigError


def test_patterns_match_whole_names_and_no_internal_topics() -> None:
    topics = [TopicView(name=name) for name in ("web-2", "web-1", "my-web-1", "web")]
    topics.append(TopicView(name="web-internal", is_internal=True))
    assert matching_topics(topics, compile_patterns(["web-.*"])) == ["web-1", "web-2"]
    assert matching_topics(topics, compile_patterns(["web", "my.*"])) == ["my-web-1", "web"]


def test_invalid_pattern_is_rejected() -> None:
    with pytest.raises(ConfigError, match="'web-\\(' is not a regular expression"):
        compile_patterns(["web-("])
