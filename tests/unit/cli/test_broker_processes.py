from __future__ import annotations

from barnabas.cli.broker_processes import ending, reason


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
