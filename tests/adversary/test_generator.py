"""The generator: its requests are well-formed, as large as allowed, and cover every API."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.broker.router import ROUTES
from barnabas.wire.apis import APIS, Api
from barnabas.wire.codec import decode_from
from barnabas.wire.headers import decode_request_header
from tests.adversary.generator import KINDS, LARGE, SMALL, Writer, kinds_for
from tests.adversary.hints import TOPIC, Entities
from tests.adversary.schema import api_named, array_paths
from tests.raw_connection import SIZE

ENTITIES = Entities(UUID(int=9), "member", 1, 1, 9092)


def frames(data: bytes) -> list[bytes]:
    found = []
    while data:
        end = 4 + SIZE.unpack_from(data)[0]
        found.append(data[4:end])
        data = data[end:]
    return found


def test_every_served_api_is_attacked() -> None:
    assert set(ROUTES) == set(APIS)
    for api in APIS.values():
        kinds = kinds_for(api)
        assert {"everything", "pipelined"} <= set(kinds)
        has_arrays = any(array_paths(api.request, version) for version in api.versions)
        assert ("repeat" in kinds) == ("distinct" in kinds) == has_arrays, api


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_requests_decode_without_trailing_bytes(api: Api) -> None:
    for kind in kinds_for(api):
        for attack in KINDS[kind](api, ENTITIES, False):
            # Larger ones differ only in a count, and take long to decode.
            for send in (send for send in attack.sends if len(send.data) <= SMALL):
                found = frames(send.data)
                assert len(found) == send.answers
                header, at = decode_request_header(memoryview(found[0]))
                assert header.is_served, attack
                _, end = decode_from(api.request, header.api_version, found[0], at)
                assert end == len(found[0]), attack


def test_repeat_fills_frame_with_one_existing_name() -> None:
    api = api_named("Metadata")
    for attack in KINDS["repeat"](api, ENTITIES, True):
        (frame,) = frames(attack.sends[0].data)
        assert len(frame) <= LARGE
        assert len(frame) > (LARGE if len(frame) > SMALL else SMALL) - 2048
        header, at = decode_request_header(memoryview(frame))
        topics = decode_from(api.request, header.api_version, frame, at)[0].topics  # type: ignore[attr-defined]
        assert len(topics) > 500
        assert {topic.name for topic in topics} == {TOPIC}


def test_distinct_names_differ() -> None:
    api = api_named("OffsetFetch")
    for attack in KINDS["distinct"](api, ENTITIES, False):
        (frame,) = frames(attack.sends[0].data)
        header, at = decode_request_header(memoryview(frame))
        request, end = decode_from(api.request, header.api_version, frame, at)
        assert end == len(frame)
        if header.api_version == 9 and attack.detail.endswith("groups"):
            groups = [group.group_id for group in request.groups]  # type: ignore[attr-defined]
            assert len(set(groups)) == len(groups) > 500


def test_override_reaches_nested_field() -> None:
    api = api_named("CreateTopics")
    path = ("topics", "configs", "value")
    frame = Writer(api, 7, ENTITIES, overrides={path: "a/b"}).frame()[4:]
    header, at = decode_request_header(memoryview(frame))
    request, _ = decode_from(api.request, header.api_version, frame, at)
    assert request.topics[0].configs[0].value == "a/b"  # type: ignore[attr-defined]
