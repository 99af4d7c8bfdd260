"""Create a topic, change one of its settings, and describe it.

barnabas up --ephemeral -- python examples/plain/admin.py
"""

from __future__ import annotations

import os

import barnabas

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP_SERVERS", "localhost:9092")


def main() -> None:
    with barnabas.Admin(SERVERS) as admin:
        try:
            admin.create_topic("orders", num_partitions=3)
            print("created orders")
        except barnabas.ApiError as error:
            if error.code is not barnabas.ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            print("orders exists already")
        admin.alter_configs({"retention.ms": 3_600_000}, topic="orders")
        for partition in admin.describe_topic("orders").partitions:
            print(f"partition {partition.partition}: {len(partition.replicas)} replica")
        print("groups:", ", ".join(admin.list_groups()) or "none")


if __name__ == "__main__":
    main()
