"""Envelope: rejected, because brokers do not forward requests of clients to the controller.

Kafka in ZooKeeper mode does the same: it advertises the API and closes the connection.
"""

from __future__ import annotations

from barnabas.broker.connection import CloseConnection, Connection
from barnabas.broker.context import BrokerContext
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse


def handle(
    _: BrokerContext, request: EnvelopeRequest, header: RequestHeader, connection: Connection
) -> EnvelopeResponse:
    raise CloseConnection("forwarding is not enabled; send the request to the controller")
