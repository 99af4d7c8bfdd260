"""Rounds of `topics mirror`: which errors concern one topic, and which topics are tried again."""

from __future__ import annotations

import pytest

from barnabas.cli.spark.failure import SparkEnded
from barnabas.cli.topics import mirror_rounds
from barnabas.cli.topics.mirror_rounds import FailedTopics, Round, for_each_topic
from barnabas.client.cluster import Unreachable
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.jobs.errors import CopyDiffers, JobRefused
from barnabas.jobs.mirror import MirroredTopic
from barnabas.spark.error_text import QueryFailed


def run(errors: dict[str, BarnabasError]) -> Round[str]:
    def action(topic: str) -> str:
        if topic in errors:
            raise errors[topic]
        return topic

    return for_each_topic(["a", "b", "c"], action)


@pytest.mark.parametrize(
    "error",
    [
        JobRefused("no mirror"),
        CopyDiffers("differs"),
        QueryFailed("OtherWriter"),
        ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ApiError(ErrorCode.LEADER_NOT_AVAILABLE),
    ],
)
def test_failure_of_one_topic_does_not_stop_the_others(error: BarnabasError) -> None:
    assert run({"a": error}) == (["b", "c"], {"a": error}, None)


@pytest.mark.parametrize(
    "error",
    [
        SparkEnded(),
        Unreachable([("h:1", "refused")]),
        ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED),
    ],
)
def test_failure_of_a_cluster_ends_the_round(error: BarnabasError) -> None:
    refused = JobRefused("no mirror")
    assert run({"a": refused, "b": error}) == ([], {"a": refused}, error)


def test_last_error_is_raised_after_the_others_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(JobRefused, match="second"):
        run({"a": JobRefused("first"), "c": JobRefused("second")}).raise_failure()
    assert capsys.readouterr().err == "error: first\n"
    run({}).raise_failure()


def test_failed_topic_is_paused_and_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = FailedTopics()
    refused = Round[MirroredTopic]([], {"a": JobRefused("no mirror")})
    assert failed.update(refused) == ["no mirror (topic a is tried again every 30 s)"]
    assert failed.without_paused(["a", "b"]) == ["b"]
    monkeypatch.setattr(mirror_rounds, "PAUSE_S", 0.0)
    assert failed.update(refused) == []
    assert failed.without_paused(["a", "b"]) == ["a", "b"]
    # After a success, the same failure is reported again.
    failed.update(Round([MirroredTopic("a", "a", 1, 0, 0, 0)], {}))
    assert len(failed.update(refused)) == 1


def test_topic_with_records_of_another_client_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_rounds, "PAUSE_S", 0.0)
    failed = FailedTopics()
    (note,) = failed.update(Round([], {"a": CopyDiffers("a-0 ends at 9")}))
    assert note == "a-0 ends at 9 (topic a is left out from now on)"
    assert failed.without_paused(["a", "b"]) == ["b"]
