from __future__ import annotations

import pytest

from barnabas.cli.topics.replica_assignment import parse_assignment
from barnabas.errors import ConfigError


def test_assignment_lists_brokers_per_partition() -> None:
    assert parse_assignment("0:1:2,1:2:0") == ((0, 1, 2), (1, 2, 0))
    for wrong in ("a", "0:,1", "0;1"):
        with pytest.raises(ConfigError, match="0:1:2,1:2:0"):
            parse_assignment(wrong)
