"""Read new orders as a member of a group. A second run continues where the first one stopped.

barnabas up --ephemeral --topic orders:3:1 -- sh -c \
    'python examples/plain/produce.py && python examples/plain/group.py'
"""

from __future__ import annotations

import os

import barnabas

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP_SERVERS", "localhost:9092")


def main() -> None:
    count = 0
    with barnabas.GroupConsumer(
        SERVERS,
        "billing",
        ["orders"],
        auto_offset_reset="earliest",
        consumer_timeout_ms=1_000,  # the loop ends if no order arrives for a second
    ) as consumer:
        for _ in consumer:
            count += 1
    print(f"{count} new orders")


if __name__ == "__main__":
    main()
