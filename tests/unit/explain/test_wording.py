from __future__ import annotations

from barnabas.explain.wording import brokers_are, name_brokers, plain_ranges


def test_broker_list_is_joined_with_and() -> None:
    assert name_brokers([1]) == "broker 1"
    assert name_brokers([1, 2]) == "brokers 1 and 2"
    assert name_brokers([1, 2, 3]) == "brokers 1, 2 and 3"
    assert brokers_are([1, 2]) == "brokers 1 and 2 are"


def test_long_runs_of_numbers_become_ranges() -> None:
    assert plain_ranges([4]) == "4"
    assert plain_ranges([0, 1]) == "0 and 1"
    assert plain_ranges([0, 1, 2, 5]) == "0 to 2 and 5"
