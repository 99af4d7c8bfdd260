"""Kafka and Barnabas accept the same damaged batches, and reject the same ones. Error codes may differ."""

from __future__ import annotations

import pytest

from barnabas.errors import ErrorCode
from interop.harness.kafka import KafkaBroker
from support.broker import BrokerProcess
from support.mutated_batches import mutated_batches
from tests.compatibility.raw import Raw

BATCHES = 3_000


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_damaged_batches_get_the_same_verdict(
    kafka: KafkaBroker, ours: BrokerProcess, policy: str
) -> None:
    topic = f"mutated-{policy}"
    with Raw(kafka.bootstrap_servers) as theirs, Raw(ours.bootstrap_servers) as raw:
        for each in (theirs, raw):
            each.create_topic(topic, configs={"cleanup.policy": policy})
        differences = []
        for number, batch in enumerate(mutated_batches(7, BATCHES)):
            expected = ErrorCode(theirs.produce(topic, batch).error_code)
            found = ErrorCode(raw.produce(topic, batch).error_code)
            if (expected is ErrorCode.NONE) != (found is ErrorCode.NONE):
                differences.append(f"batch {number}: Kafka {expected.name}, Barnabas {found.name}")
    assert not differences, "\n".join(differences)
