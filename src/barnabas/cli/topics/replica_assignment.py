"""Parser for the replica assignments of the command line."""

from __future__ import annotations

from barnabas.errors import ConfigError


def parse_assignment(
    text: str, option: str = "--replica-assignment"
) -> tuple[tuple[int, ...], ...]:
    """Parse `0:1:2,1:2:0`: the first partition on brokers 0, 1 and 2, the second on 1, 2 and 0."""
    try:
        return tuple(
            tuple(int(broker) for broker in partition.split(":")) for partition in text.split(",")
        )
    except ValueError:
        why = f"{text!r} is not like 0:1:2,1:2:0, the brokers of each partition"
        raise ConfigError(option, why) from None
