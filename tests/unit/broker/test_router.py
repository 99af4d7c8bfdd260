from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from importlib import import_module
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.broker.router import HANDLERS, ROUTES, Router
from barnabas.errors import RemoteWireError
from barnabas.wire.apis import APIS, Api
from barnabas.wire.codec import encode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.delete_acls import DeleteAclsRequest
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


async def test_failed_handler_of_disconnected_client_leaves_no_unretrieved_exception() -> None:
    async def fail() -> None:
        raise RemoteWireError("invalid")

    router = Router(cast(Any, SimpleNamespace(client_quotas=None)))
    header = RequestHeader(DeleteAclsRequest.API_KEY, 1, 1, "client")
    connection = cast(Any, SimpleNamespace(meter=None))
    response = router.respond(ROUTES[header.api_key], header, fail(), connection)
    in_progress = asyncio.ensure_future(cast(Coroutine[Any, Any, Any], response))
    in_progress.cancel()  # the client disconnects before the first step
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, details: reported.append(details))
    await asyncio.gather(in_progress, *router.running, return_exceptions=True)
    del response, in_progress
    await asyncio.sleep(0)
    gc.collect()
    assert reported == []
