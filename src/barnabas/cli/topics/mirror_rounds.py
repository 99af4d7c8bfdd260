"""One round of a mirror over its topics: a topic that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from barnabas.cli.spark.failure import SparkEnded
from barnabas.cli.terminal.failure import explain
from barnabas.cli.terminal.output import print_note
from barnabas.client.blocking import Deadline
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.jobs.errors import CopyDiffers

if TYPE_CHECKING:
    from barnabas.jobs.mirror import MirroredTopic

PAUSE_S = 30.0
"""Time after which a topic that failed is tried again."""

TOPIC_CODES = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""Errors of brokers that are about one topic. Others are about the connection or the cluster."""

Result = TypeVar("Result")


class Round(NamedTuple, Generic[Result]):
    """Results, errors by topic, and the error that ended the round, because it is about no single topic."""

    done: list[Result]
    failures: dict[str, BarnabasError]
    error: BarnabasError | None = None

    def raise_failure(self) -> None:
        """Raise the last error, if there is one, after printing the others."""
        errors = [*self.failures.values(), *([] if self.error is None else [self.error])]
        for error in errors[:-1]:
            print_note(*explain(error).split("\n"))
        if errors:
            raise errors[-1]


def for_each_topic(topics: Sequence[str], action: Callable[[str], Result]) -> Round[Result]:
    """Call `action` for each topic, up to an error that is about no single topic."""
    done: list[Result] = []
    failures: dict[str, BarnabasError] = {}
    for topic in topics:
        try:
            done.append(action(topic))
        except BarnabasError as error:
            if not is_of_topic(error):
                return Round(done, failures, error)
            failures[topic] = error
    return Round(done, failures)


def is_of_topic(error: BarnabasError) -> bool:
    """Return whether other topics may succeed."""
    if isinstance(error, ApiError):
        return error.code in TOPIC_CODES
    return not isinstance(error, SparkEnded)


class FailedTopics:
    """The topics that failed in a continuous mirror. They are left out for a while."""

    def __init__(self) -> None:
        self.pauses: dict[str, Deadline | None] = {}
        """Without a deadline, the topic is left out until the end of this run."""
        self.reported: dict[str, str] = {}

    def without_paused(self, topics: Sequence[str]) -> list[str]:
        self.pauses = {
            topic: pause
            for topic, pause in self.pauses.items()
            if pause is None or not pause.passed
        }
        return [topic for topic in topics if topic not in self.pauses]

    def update(self, copied: Round[MirroredTopic]) -> list[str]:
        """Store the failures of a round. Returns a line for each new one."""
        for result in copied.done:
            self.reported.pop(result.topic, None)
        notes = []
        for topic, error in copied.failures.items():
            # A repeated copy would count the records of another client as its own.
            is_final = isinstance(error, CopyDiffers)
            self.pauses[topic] = None if is_final else Deadline(PAUSE_S)
            if self.reported.get(topic) != str(error):
                self.reported[topic] = str(error)
                next_step = (
                    "left out from now on" if is_final else f"tried again every {PAUSE_S:.0f} s"
                )
                notes.append(f"{error} (topic {topic} is {next_step})")
        return notes
