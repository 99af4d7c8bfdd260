from __future__ import annotations

from importlib import import_module
from random import Random

import pytest

from barnabas.broker.router import HANDLERS, ROUTES
from barnabas.wire.apis import APIS, Api
from barnabas.wire.codec import encode
from tests.unit.wire.random_messages import random_message


def test_every_advertised_api_has_a_route() -> None:
    assert ROUTES.keys() == APIS.keys()


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_handler_is_in_the_module_named_after_its_api(api: Api) -> None:
    handler = import_module(f"barnabas.broker.handlers.{api.module}").handle
    assert callable(handler)
    if api.key in HANDLERS:
        assert HANDLERS[api.key] is handler


@pytest.mark.parametrize("key", ROUTES)
def test_every_route_decodes_its_request(key: int) -> None:
    api = APIS[key]
    version = api.versions[-1]
    body = encode(random_message(Random(key), api.request, version), version)
    assert ROUTES[key].decode(version, memoryview(body), 0) is not None
