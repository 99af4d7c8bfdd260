from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.elections.elect_leaders import (
    check_selection,
    elections_document,
    elections_text,
    parse_selection,
    read_partition_file,
    remaining_elections,
    unclean_question,
    with_elected_leaders,
)
from barnabas.cli.elections.plan import PredictedElection
from barnabas.client.cluster import Cluster
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.wire.messages.elect_leaders import ElectionType
from tests.unit.client.scripted_broker import ScriptedBroker

FAILED = ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "broker 3 is not in the ISR")
NOT_NEEDED = ApiError(ErrorCode.ELECTION_NOT_NEEDED)


def predicted(number: int, before: int | None, after: int | None, **more: Any) -> PredictedElection:
    return PredictedElection(
        partition=TopicPartition("orders", number), before=before, after=after, **more
    )


def test_partition_options_belong_to_the_only_topic() -> None:
    assert parse_selection(["orders"], [2, 3]) == [("orders", [2, 3])]
    assert parse_selection(["orders:1", "clicks"], []) == [("orders", [1]), ("clicks", [])]
    for topics in ([], ["a", "b"]):
        with pytest.raises(ConfigError, match="needs exactly one --topic"):
            parse_selection(topics, [0])


def test_selections_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="--topic: cannot be combined with --file"):
        check_selection([("a", ())], Path("f"), all_partitions=False, unclean=False)
    with pytest.raises(ConfigError, match="--file: cannot be combined with --all"):
        check_selection([], Path("f"), all_partitions=True, unclean=False)


def test_unclean_election_requires_explicit_selection() -> None:
    with pytest.raises(ConfigError, match="--unclean: loses records"):
        check_selection([], None, all_partitions=False, unclean=True)
    check_selection([], None, all_partitions=True, unclean=True)
    check_selection([], None, all_partitions=False, unclean=False)


def test_invalid_partition_file_names_path_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "partitions.json"
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"--file: .*partitions.json is not JSON: "):
        read_partition_file(path)
    path.write_text("{}")
    with pytest.raises(ConfigError, match=r'partitions.json: .* missing "partitions" field'):
        read_partition_file(path)


def test_dry_run_shows_who_would_lead() -> None:
    elections = [
        predicted(0, 2, 1),
        predicted(1, 2, None, why="broker 3 is not in sync"),
    ]
    document = elections_document(ElectionType.PREFERRED, 6, elections, {}, dry_run=True)
    assert document["not_needed"] == 4
    assert [row["result"] for row in document["partitions"]] == ["would elect", "would fail"]
    assert elections_text(document).splitlines() == [
        "would elect 1 preferred leader; 1 would fail; 4 partitions have their preferred leader",
        "TOPIC   PARTITION  BEFORE  AFTER",
        "orders          0       2      1",
        "orders          1       2      2  broker 3 is not in sync",
    ]


def test_elections_are_shown_with_broker_errors() -> None:
    elections = [predicted(0, 2, 1), predicted(1, 2, 3), predicted(2, 2, 1)]
    outcomes = {
        TopicPartition("orders", 0): None,
        TopicPartition("orders", 1): FAILED,
        TopicPartition("orders", 2): NOT_NEEDED,
    }
    document = elections_document(ElectionType.PREFERRED, 3, elections, outcomes, dry_run=False)
    assert document["not_needed"] == 1
    done, failed = document["partitions"]
    assert (done["result"], done["after"], done["error"]) == ("elected", 1, None)
    assert (failed["result"], failed["after"]) == ("failed", 2)
    assert failed["error"] == "PREFERRED_LEADER_NOT_AVAILABLE"
    assert elections_text(document).splitlines()[0] == (
        "elected 1 preferred leader; 1 failed; 1 partition has its preferred leader"
    )


def test_unclean_election_says_that_records_are_lost() -> None:
    elections = [predicted(0, None, 2, is_unclean=True), predicted(1, None, 1)]
    assert unclean_question(elections) == (
        "1 partition would get a leader that is not in sync; records that it does not have are"
        " lost. Elect leaders of 2 partitions?"
    )
    document = elections_document(ElectionType.UNCLEAN, 2, elections, {}, dry_run=True)
    assert elections_text(document).splitlines() == [
        "would elect 2 unclean leaders",
        "TOPIC   PARTITION  BEFORE  AFTER",
        "orders          0  none        2  not in sync: loses records",
        "orders          1  none        1",
    ]


def test_nothing_to_do_is_one_line() -> None:
    document = elections_document(ElectionType.PREFERRED, 6, [], {}, dry_run=False)
    assert elections_text(document) == (
        "no election is needed: 6 partitions have their preferred leader"
    )


def test_progress_counts_partitions_without_the_new_leader() -> None:
    with ScriptedBroker(node_id=1) as broker, Cluster(broker.address) as cluster:
        broker.topics = {"orders": 3}
        waiting = [
            predicted(0, 3, 1),
            predicted(1, 1, 2),
            predicted(2, 1, 3),
            predicted(2, 1, None),
        ]
        assert remaining_elections(cluster, waiting) == (
            "2 of 3 partitions waiting for the new leader"
        )
        assert remaining_elections(cluster, waiting[:1]) == ""


def test_leaders_after_an_election_come_from_the_metadata() -> None:
    with ScriptedBroker(node_id=1) as broker, Cluster(broker.address) as cluster:
        found = with_elected_leaders(cluster, [predicted(0, None, 2), predicted(0, 1, 2)])
    # Broker 1 leads. That is another choice than predicted, or the queried broker does not know the new leader yet.
    assert [each.after for each in found] == [1, 2]
