"""Verification of transactions by their coordinator, over sockets and in the same broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas.errors import ErrorCode
from barnabas.metadata.cache import MetadataCache
from barnabas.model import BrokerId, TopicPartition
from barnabas.transactions.transaction_events import ProducerIdentity
from barnabas.transactions.verification_channels import (
    Question,
    VerificationChannels,
    build_verification,
    take_questions,
)
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tests.unit.broker.test_transaction_requests import Broker
from tests.unit.replication.nodes import Node, Nodes

NONE = ErrorCode.NONE
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    made = Broker(Nodes(Node(1)))
    await made.start()
    await made.init()
    await made.add(AddPartitionsToTxnTopic("orders", (0,)))
    yield made
    made.connection.close()
    await made.context.lazy_transactions.stop()
    await made.nodes.stop()


@pytest.fixture(params=[1, 9], ids=["local", "remote"])
async def channels(
    broker: Broker, request: pytest.FixtureRequest
) -> AsyncIterator[VerificationChannels]:
    made = channels_of(broker, request.param)
    yield made
    await made.stop()


def channels_of(broker: Broker, broker_id: int) -> VerificationChannels:
    return VerificationChannels(
        broker_id=BrokerId(broker_id),
        network=broker.node.network,
        metadata=broker.node.metadata,
        listener="PLAINTEXT",
        timeout_s=10.0,
        local=lambda: broker.context.transactions,
    )


async def test_partitions_of_the_transaction(channels: VerificationChannels) -> None:
    assert await channels.verify("app", 1000, 0, [P0, P1]) == {
        P0: NONE,
        P1: ErrorCode.TRANSACTION_ABORTABLE,
    }
    assert await channels.verify("app", 1000, 7, [P0]) == {P0: ErrorCode.PRODUCER_FENCED}
    found = await channels.verify("other", 1000, 0, [P0])
    assert found == {P0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}


async def test_many_questions_at_once(channels: VerificationChannels) -> None:
    questions = [channels.verify("app", 1000, epoch % 2, [P0]) for epoch in range(20)]
    codes = [(await each)[P0] for each in questions]
    assert codes == [NONE, ErrorCode.PRODUCER_FENCED] * 10


async def test_no_coordinator(channels: VerificationChannels) -> None:
    channels.metadata = MetadataCache("cluster")
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await channels.verify("app", 1000, 0, [P0]) == {P0: code}


async def test_unreachable_coordinator(broker: Broker) -> None:
    channels = channels_of(broker, 9)
    channels.listener = "UNKNOWN"
    code = ErrorCode.NETWORK_EXCEPTION
    for _ in range(2):
        assert await channels.verify("app", 1000, 0, [P0]) == {P0: code}
    channels.listener = "PLAINTEXT"
    assert await channels.verify("app", 1000, 0, [P0]) == {P0: NONE}
    await channels.stop()


async def test_stop_answers_the_waiting_questions(broker: Broker) -> None:
    channels = channels_of(broker, 9)
    found = [channels.verify("app", 1000, 0, [P0]), channels.verify("app", 1000, 1, [P0])]
    await asyncio.sleep(0)
    await channels.stop()
    for each in found:
        assert (await each)[P0] in (NONE, ErrorCode.NETWORK_EXCEPTION)


async def test_cancelled_question_is_ignored(broker: Broker) -> None:
    channels = channels_of(broker, 9)
    channels.verify("app", 1000, 0, [P0]).cancel()
    assert await channels.verify("app", 1000, 0, [P0]) == {P0: NONE}
    await channels.stop()


async def test_request_names_each_transactional_id_once() -> None:
    loop = asyncio.get_running_loop()

    def question(name: str, epoch: int, *partitions: TopicPartition) -> Question:
        return Question(name, ProducerIdentity(1, epoch), partitions, loop.create_future())

    queue = [
        question("app", 0, P1),
        question("app", 1, P0),
        question("other", 0, P0),
        question("app", 0, P0, P1),
    ]
    taken, rest = take_questions(queue)
    assert rest == [queue[1]]

    def transaction(name: str, *indexes: int) -> AddPartitionsToTxnTransaction:
        topics = (AddPartitionsToTxnTopic("orders", indexes),)
        return AddPartitionsToTxnTransaction(name, 1, 0, True, topics)

    assert build_verification(taken) == AddPartitionsToTxnRequest(
        transactions=(transaction("app", 0, 1), transaction("other", 0))
    )
