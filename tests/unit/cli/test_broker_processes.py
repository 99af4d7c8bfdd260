from __future__ import annotations

from pathlib import Path

from barnabas.cli.broker_processes import (
    RESTARTS_MAX,
    RESTARTS_PERIOD_SECONDS,
    Restarts,
    ending,
    reason,
    stuck,
)


def test_the_reason_of_a_death_is_its_error_without_the_word_and_the_hint() -> None:
    assert reason(["12:00 INFO starting", "error: no room", "hint:  make some"]) == "no room"
    assert reason(["12:00 INFO starting", "error: no room"]) == "no room"
    assert reason(["error: of an earlier life", "12:00 INFO starting", "MemoryError"]) == (
        "MemoryError"
    )
    assert reason([]) == "it said nothing"


def test_an_end_is_told_by_its_signal_or_its_code() -> None:
    assert ending(-9) == "was ended by SIGKILL"
    assert ending(3) == "ended with exit code 3"


def test_restarts_back_off_and_are_bounded() -> None:
    restarts = Restarts()
    delays = [restarts.next_delay(100.0 + number) for number in range(RESTARTS_MAX)]
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert restarts.next_delay(200.0) is None
    assert restarts.next_delay(99.0 + RESTARTS_PERIOD_SECONDS) is None


def test_restarts_are_forgotten_after_a_period() -> None:
    restarts = Restarts()
    for _ in range(RESTARTS_MAX):
        restarts.next_delay(100.0)
    assert restarts.next_delay(100.0 + RESTARTS_PERIOD_SECONDS) == 1.0


def test_message_says_whether_a_stuck_broker_is_restarted() -> None:
    log = Path("broker-2.log")
    assert stuck(2, 4.0, log).endswith(
        "(exit code 75, stack in broker-2.log); restarting it in 4 s"
    )
    assert stuck(2, None, log).endswith("not restarting it: it was restarted 5 times in 10 min")
