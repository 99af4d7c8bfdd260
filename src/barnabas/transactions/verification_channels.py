"""Asks the coordinators of transactions whether partitions belong to them, with AddPartitionsToTxn.

A leader asks before it appends the first batch of a transaction (broker/transaction_verification.py). If this broker is
the coordinator, the answer is immediate. Otherwise there is one connection per coordinator. While a request is in
flight, further questions wait, and the next request takes all of them. Nothing is retried here: producers retry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.errors import ErrorCode, WireError, reason
from barnabas.groups.store import partition_of
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.topic_names import TRANSACTION_STATE
from barnabas.model import NO_LEADER, BrokerId, TopicPartition
from barnabas.tasks import Tasks
from barnabas.transactions.coordinator import TransactionCoordinator
from barnabas.transactions.leader_exchange import LeaderConnection
from barnabas.transactions.records import group_by_topic
from barnabas.transactions.transaction_events import ProducerIdentity
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.world.ports import Network

logger = logging.getLogger("barnabas.transactions")

VerificationCodes = Mapping[TopicPartition, ErrorCode]


class Question(NamedTuple):
    """Partitions to verify, and the future of their error codes."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: tuple[TopicPartition, ...]
    codes: asyncio.Future[VerificationCodes]

    def answer(self, codes: VerificationCodes) -> None:
        if not self.codes.done():  # a disconnected client cancels it
            self.codes.set_result(codes)

    def answer_all(self, code: ErrorCode) -> None:
        self.answer(dict.fromkeys(self.partitions, code))


class VerificationChannels:
    """Implements `TransactionVerifier` of broker/transaction_verification.py."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        network: Network,
        metadata: MetadataCache,
        listener: str,
        timeout_s: float,
        local: Callable[[], TransactionCoordinator],
    ) -> None:
        self.broker_id = broker_id
        self.network = network
        self.metadata = metadata
        self.listener = listener
        self.timeout_s = timeout_s
        self.local = local
        """Returns the coordinator of this broker."""
        self.senders: dict[BrokerId, VerificationSender] = {}
        self.tasks = Tasks()

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
    ) -> asyncio.Future[VerificationCodes]:
        """Return the error codes by partition: NONE for those of the ongoing transaction. The future does not fail."""
        question = Question(
            transactional_id,
            ProducerIdentity(producer_id, producer_epoch),
            tuple(partitions),
            asyncio.get_running_loop().create_future(),
        )
        coordinator = self.coordinator_of(transactional_id)
        if coordinator == NO_LEADER:
            question.answer_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif coordinator == self.broker_id:
            found = self.local().verify_partitions(
                transactional_id, question.producer, question.partitions
            )
            question.answer(found)
        else:
            self.sender_of(coordinator).add(question)
        return question.codes

    def coordinator_of(self, transactional_id: str) -> BrokerId:
        """Return the coordinator, or NO_LEADER if there is none now."""
        topic = self.metadata.topics.get(TRANSACTION_STATE)
        if topic is None:
            return NO_LEADER
        state = topic.partitions.get(partition_of(transactional_id, len(topic.partitions)))
        return NO_LEADER if state is None else state.leader

    def sender_of(self, broker: BrokerId) -> VerificationSender:
        sender = self.senders.get(broker)
        if sender is None:
            sender = self.senders[broker] = VerificationSender(broker, self)
            self.tasks.start(f"verify-transactions-{broker}", sender.run())
        return sender

    async def stop(self) -> None:
        await self.tasks.stop()
        for sender in self.senders.values():
            for question in sender.queue:
                question.answer_all(ErrorCode.NETWORK_EXCEPTION)


class VerificationSender:
    """Sends the waiting questions to one coordinator, one request at a time."""

    def __init__(self, broker: BrokerId, channels: VerificationChannels) -> None:
        self.broker = broker
        self.channels = channels
        self.queue: list[Question] = []
        self.wakeup = asyncio.Event()
        self.connection = LeaderConnection(broker, channels)

    def add(self, question: Question) -> None:
        self.queue.append(question)
        self.wakeup.set()

    async def run(self) -> None:
        try:
            while True:
                while not self.queue:
                    self.wakeup.clear()
                    await self.wakeup.wait()
                questions, self.queue = take_questions(self.queue)
                await self.ask(questions)
        finally:
            self.connection.close("the broker stopped verifying transactions")

    async def ask(self, questions: list[Question]) -> None:
        """Ask once, and answer every question."""
        try:
            response = await self.connection.exchange(
                build_verification(questions),
                AddPartitionsToTxnResponse,
                is_leader=lambda: self.coordinates_all(questions),
            )
            codes = read_verification(response)
            for question in questions:
                found = codes.get(question.transactional_id, {})
                missing = response.error_code or ErrorCode.NETWORK_EXCEPTION
                if missing == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                    missing = ErrorCode.INVALID_TXN_STATE
                question.answer(
                    {each: found.get(each, ErrorCode(missing)) for each in question.partitions}
                )
        except (OSError, TimeoutError, WireError) as error:
            self.connection.close("lost")
            logger.warning(
                "cannot verify transactions coordinator=%d error=%s", self.broker, reason(error)
            )
        except Exception:
            logger.exception("cannot handle a verification coordinator=%d", self.broker)
        finally:
            for question in questions:  # those without an answer yet
                question.answer_all(ErrorCode.NETWORK_EXCEPTION)

    def coordinates_all(self, questions: Iterable[Question]) -> bool:
        coordinator_of = self.channels.coordinator_of
        return all(coordinator_of(each.transactional_id) == self.broker for each in questions)


def take_questions(queue: Collection[Question]) -> tuple[list[Question], list[Question]]:
    """Split the queue into the questions of the next request and the rest.

    A request names each transactional id once, so it takes the questions of one producer for it.
    """
    producers: dict[str, ProducerIdentity] = {}
    taken: list[Question] = []
    rest: list[Question] = []
    for question in queue:
        producer = producers.setdefault(question.transactional_id, question.producer)
        (taken if producer == question.producer else rest).append(question)
    return taken, rest


def build_verification(questions: Iterable[Question]) -> AddPartitionsToTxnRequest:
    partitions: dict[tuple[str, ProducerIdentity], set[TopicPartition]] = {}
    for question in questions:
        key = question.transactional_id, question.producer
        partitions.setdefault(key, set()).update(question.partitions)
    return AddPartitionsToTxnRequest(
        transactions=tuple(
            AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=True,
                topics=tuple(
                    AddPartitionsToTxnTopic(topic, indexes)
                    for topic, indexes in group_by_topic(found)
                ),
            )
            for (name, producer), found in partitions.items()
        )
    )


def read_verification(
    response: AddPartitionsToTxnResponse,
) -> dict[str, dict[TopicPartition, ErrorCode]]:
    """Return the error codes by transactional id and partition."""
    return {
        transaction.transactional_id: {
            TopicPartition(topic.name, result.partition_index): ErrorCode(
                result.partition_error_code
            )
            for topic in transaction.topic_results
            for result in topic.results_by_partition
        }
        for transaction in response.results_by_transaction
    }
