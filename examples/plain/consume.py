"""Read the whole topic, without a group, and print the total of each key.

barnabas up --ephemeral --topic orders:3:1 -- sh -c \
    'python examples/plain/produce.py && python examples/plain/consume.py'
"""

from __future__ import annotations

import json
import os
from collections import Counter

import barnabas

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP_SERVERS", "localhost:9092")


def main() -> None:
    totals: Counter[str] = Counter()
    with barnabas.Consumer(SERVERS, "orders", auto_offset_reset="earliest") as consumer:
        for record in consumer.read_to_end():
            user = (record.key or b"").decode()
            totals[user] += json.loads(record.value or b"{}")["amount"]
    for user, total in sorted(totals.items()):
        print(user, total)


if __name__ == "__main__":
    main()
