"""Wording for lists of brokers and partitions."""

from __future__ import annotations

from collections.abc import Sequence


def name_brokers(brokers: Sequence[int]) -> str:
    """
    >>> name_brokers([1]), name_brokers([1, 2, 3])
    ('broker 1', 'brokers 1, 2 and 3')
    """
    return f"{'broker' if len(brokers) == 1 else 'brokers'} {join_with_and(brokers)}"


def join_with_and(items: Sequence[object]) -> str:
    """
    >>> join_with_and([1]), join_with_and(["a", "b", "c"])
    ('1', 'a, b and c')
    """
    *most, last = map(str, items)
    return f"{', '.join(most)} and {last}" if most else last


def brokers_are(brokers: Sequence[int]) -> str:
    return f"{name_brokers(brokers)} {'is' if len(brokers) == 1 else 'are'}"


def plain_ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as text. Runs of three and more become ranges.

    >>> plain_ranges([3]), plain_ranges([0, 3]), plain_ranges([0, 1, 2, 3, 7])
    ('3', '0 and 3', '0 to 3 and 7')
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] + 1 == number:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts: list[object] = []
    for run in runs:
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else run
    return join_with_and(parts)
