from __future__ import annotations

from random import Random

import pytest

from barnabas.broker.router import ROUTES
from barnabas.wire.apis import APIS
from barnabas.wire.codec import encode
from tests.unit.wire.random_messages import random_message


def test_what_is_advertised_has_a_handler_and_what_has_a_handler_is_advertised() -> None:
    assert ROUTES.keys() == APIS.keys()


@pytest.mark.parametrize("key", ROUTES)
def test_every_route_finds_its_handler_and_reads_its_request(key: int) -> None:
    api = APIS[key]
    version = api.versions[-1]
    body = encode(random_message(Random(key), api.request, version), version)
    assert ROUTES[key].decode(version, memoryview(body), 0) is not None
