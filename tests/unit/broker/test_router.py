from __future__ import annotations

from barnabas.broker.router import ROUTES
from barnabas.wire.apis import APIS


def test_what_is_advertised_has_a_handler_and_what_has_a_handler_is_advertised() -> None:
    assert ROUTES.keys() == APIS.keys()
