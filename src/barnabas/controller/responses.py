"""Responses of brokers to the controller: results of replica deletions, and replicas on failed log directories."""

from __future__ import annotations

from barnabas.controller import deletion, plans
from barnabas.controller.context import ControllerContext
from barnabas.controller.events import RequestAnswered
from barnabas.controller.steps import Plan
from barnabas.errors import ErrorCode
from barnabas.history.recorder import Response, SentRequest
from barnabas.model import BrokerId, Replica, TopicPartition
from barnabas.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


def needs_handling(context: ControllerContext, sent: SentRequest, response: Response) -> bool:
    """Return whether a response must be queued for `plan_for_response`. Most are not."""
    if isinstance(response, StopReplicaResponse):
        return bool(context.topics_to_be_deleted) and bool(response.partition_errors)
    if isinstance(response, LeaderAndIsrResponse):
        return sent.broker in context.replicas_on_offline_dirs or any(
            each.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            for topic in response.topics
            for each in topic.partition_errors
        )
    return False


def plan_for_response(context: ControllerContext, event: RequestAnswered) -> Plan:
    """Handle a response that needs handling."""
    request, response = event.request, event.response
    if isinstance(request, StopReplicaRequest) and isinstance(response, StopReplicaResponse):
        yield from plan_for_stop_replica(context, event.broker, request, response)
    elif isinstance(request, LeaderAndIsrRequest) and isinstance(response, LeaderAndIsrResponse):
        yield from plan_for_leader_and_isr(context, event.broker, response)


def plan_for_stop_replica(
    context: ControllerContext,
    broker: BrokerId,
    request: StopReplicaRequest,
    response: StopReplicaResponse,
) -> Plan:
    """Handle the results of the replicas that the request deletes. The others are ignored."""
    deleting = {
        TopicPartition(topic.topic_name, each.partition_index)
        for topic in request.topic_states
        for each in topic.partition_states
        if each.delete_partition
    }
    errors = {
        partition: ErrorCode(response.error_code or each.error_code)
        for each in response.partition_errors
        if (partition := TopicPartition(each.topic_name, each.partition_index)) in deleting
    }
    yield from deletion.plan_stop_replica_results(context, broker, errors)


def plan_for_leader_and_isr(
    context: ControllerContext, broker: BrokerId, response: LeaderAndIsrResponse
) -> Plan:
    """Track replicas on failed log directories: KAFKA_STORAGE_ERROR adds a replica, success removes it."""
    newly_offline: list[Replica] = []
    for topic in response.topics:
        name = context.topic_names.get(topic.topic_id)
        if name is None:
            continue
        for each in topic.partition_errors:
            replica = Replica(TopicPartition(name, each.partition_index), broker)
            offline = context.replicas_on_offline_dirs.get(broker, {})
            if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                if replica.partition not in offline:
                    newly_offline.append(replica)
                context.set_replica_dir_offline(replica, offline=True)
            elif not each.error_code:
                context.set_replica_dir_offline(replica, offline=False)
    if newly_offline:
        yield from plans.plan_offline_replicas(context, tuple(newly_offline))
