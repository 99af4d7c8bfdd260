"""Encodings of the senders equal those of the codec."""

from __future__ import annotations

from random import Random

from barnabas.controller.channels import with_broker_epoch
from barnabas.wire.codec import encode
from barnabas.wire.messages.update_metadata import UpdateMetadataRequest
from tests.unit.wire.random_messages import random_message


def test_metadata_for_brokers_differs_only_in_broker_epoch() -> None:
    version = UpdateMetadataRequest.VERSIONS[-1]
    for seed in range(50):
        one = random_message(Random(seed), UpdateMetadataRequest, version)
        other = UpdateMetadataRequest(
            controller_id=one.controller_id,
            is_kraft_controller=one.is_kraft_controller,
            type=one.type,
            controller_epoch=one.controller_epoch,
            broker_epoch=seed * 1_000_000_007,
            topic_states=one.topic_states,
            live_brokers=one.live_brokers,
        )
        encoded = with_broker_epoch(encode(one, version), other.broker_epoch)
        assert encoded == encode(other, version)
