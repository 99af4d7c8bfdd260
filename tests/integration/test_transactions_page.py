"""The loop in docs/transactions.md runs, and copies each record once."""

from __future__ import annotations

import re
from pathlib import Path

import barnabas

PAGE = (Path(__file__).parents[2] / "docs" / "transactions.md").read_text()


def test_loop_copies_every_record_once() -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    with barnabas.LocalCluster() as cluster:
        servers = cluster.bootstrap_servers
        with barnabas.Client(servers) as client:
            admin = client.admin()
            admin.create_topic("orders", num_partitions=2)
            admin.create_topic("receipts", num_partitions=1)
            with client.producer() as producer:
                for number in range(20):
                    producer.send("orders", f"order {number}")
            exec(block.replace("localhost:9092", servers), {})
            consumer = client.consumer(
                "receipts", auto_offset_reset="earliest", isolation_level="read_committed"
            )
            copied = sorted(record.value or b"" for record in consumer.read_to_end())
            assert copied == sorted(b"ORDER %d" % number for number in range(20))
            assert sum(admin.list_group_offsets("copier").values()) == 20
