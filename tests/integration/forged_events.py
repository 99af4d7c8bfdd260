"""Malformed events, and requests that write them to the history topic with any client id."""

from __future__ import annotations

from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.wire.codec import encode
from barnabas.wire.headers import RequestHeader, encode_request_header
from barnabas.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from tests.compatibility.raw import Raw, produce_request, recent_batch_of
from tests.raw_connection import with_size

HEAD = '"at":"2026-05-01T08:00:00Z","broker":1,"epoch":1,"sequence":1,"cause":"c","result":"done"'
FORGED = [
    b"no event",
    b"[1]",
    b"{}",
    b"null",
    b'{"epoch":99,"sequence":1}',
    f'{{{HEAD},"what":"partition","id":"orders-0","topic":"orders"}}'.encode(),
    f'{{{HEAD},"what":"controller","id":"controller","after":[]}}'.encode(),
    f'{{{HEAD},"what":"request","id":"X to 1","to":1,"topics":["orders"]}}'.encode(),
    b'{"x":' + b"[" * 10_000,
]


def produce_as(raw: Raw, client_id: str, *values: bytes) -> PartitionProduceResponse:
    request, version = produce_request(STATE_CHANGES, recent_batch_of(*values)), 9
    header = RequestHeader(request.API_KEY, version, 77, client_id)
    raw.send(with_size(encode_request_header(header) + encode(request, version)))
    answer = raw.answer(ProduceResponse, version, 77)
    return answer.responses[0].partition_responses[0]
