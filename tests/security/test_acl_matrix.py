"""Every API with no permission, with one that does not suffice, and with the right one.

interop/test_permissions.py sends the same requests to Kafka and compares the responses.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.errors import ErrorCode
from barnabas.wire.apis import APIS, ApiKey
from support.message_builder import build_request
from support.permission_rows import ROWS, Row
from support.permissions import (
    ADMIN,
    USER,
    Grant,
    Ids,
    PlainClient,
    Summary,
    prepare,
    secured_broker,
    set_grants,
)
from support.waiting import eventually

FAILURES = {code.name for code in ErrorCode if code.name.endswith("AUTHORIZATION_FAILED")}


class Matrix:
    """A broker with ACLs, the super user, and the user whose permissions change."""

    def __init__(self, admin: PlainClient, user: PlainClient, ids: Ids) -> None:
        self.admin = admin
        self.user = user
        self.ids = ids

    def ask(self, row: Row, grants: tuple[Grant, ...]) -> Summary:
        set_grants(self.admin, grants)
        request = build_request(row.key, row.build(self.ids))
        return self.user.summarize(request, row.version)


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    with (
        secured_broker(tmp_path_factory.mktemp("acls") / "data") as broker,
        PlainClient(broker.address, ADMIN) as admin,
        PlainClient(broker.address, USER) as user,
    ):
        yield Matrix(admin, user, prepare(admin, eventually))


def test_every_api_has_a_row() -> None:
    assert {row.key for row in ROWS} == set(APIS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_request_without_permission_is_denied(matrix: Matrix, row: Row) -> None:
    found = matrix.ask(row, ())
    if row.denied is not None:
        # Some responses also have an error code for the whole request.
        assert set(found.codes) - {"NONE"} == {row.denied.name}
    if row.hidden is not None:
        assert row.hidden not in found.names


@pytest.mark.parametrize("row", [row for row in ROWS if row.wrong], ids=lambda row: row.name)
def test_request_with_wrong_permission_is_denied(matrix: Matrix, row: Row) -> None:
    found = matrix.ask(row, row.wrong)
    if row.denied is not None:
        assert row.denied.name in found.codes
    elif row.hidden is not None:
        assert row.hidden not in found.names
    elif row.right:
        assert FAILURES & set(found.codes)


@pytest.mark.parametrize("row", [row for row in ROWS if row.right], ids=lambda row: row.name)
def test_request_with_right_permission_is_allowed(matrix: Matrix, row: Row) -> None:
    found = matrix.ask(row, row.right)
    if row.key is not ApiKey.CREATE_TOPICS:  # which also reports settings
        assert not FAILURES & set(found.codes)
    if row.hidden is not None:
        assert row.hidden in found.names
