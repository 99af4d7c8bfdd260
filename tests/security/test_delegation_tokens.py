"""Delegation tokens: created, renewed, expired and described, and used to log in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import SystemRandom

import pytest

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from barnabas.security.delegation_token import token_password
from barnabas.security.sasl.mechanism import PLAIN, SCRAM_MECHANISMS, SCRAM_SHA_256, SaslClient
from barnabas.security.sasl.scram import ScramClient
from barnabas.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    TokenRenewer,
)
from barnabas.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    TokenOwner,
)
from barnabas.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from support.waiting import eventually
from tests.compatibility.raw import Raw
from tests.security.logins import USER, SaslConnection, client_of, sasl_cluster, sasl_servers

SETTINGS = {
    "delegation.token.secret.key": "the secret of all brokers",
    "delegation.token.expiry.check.interval.ms": "100",
}
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with sasl_cluster(SETTINGS) as running:
        yield running


@pytest.fixture
def alice(cluster: LocalCluster) -> Iterator[SaslConnection]:
    with SaslConnection(sasl_servers(cluster)) as connection:
        connection.log_in(client_of(PLAIN))
        yield connection


@pytest.fixture
def bob(cluster: LocalCluster) -> Iterator[SaslConnection]:
    with SaslConnection(sasl_servers(cluster)) as connection:
        connection.log_in(client_of(PLAIN, "bob", "bob-secret"))
        yield connection


def create(
    connection: Raw, *renewers: TokenRenewer, lifetime_ms: int = -1, owner: str | None = None
) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(
        renewers=renewers,
        max_lifetime_ms=lifetime_ms,
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
    )
    return connection.ask(request, CreateDelegationTokenResponse)


def renew(connection: Raw, hmac: bytes | memoryview, period_ms: int = -1) -> tuple[int, int]:
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    response = connection.ask(request, RenewDelegationTokenResponse)
    return response.error_code, response.expiry_timestamp_ms


def expire(connection: Raw, hmac: bytes | memoryview, period_ms: int = -1) -> tuple[int, int]:
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    response = connection.ask(request, ExpireDelegationTokenResponse)
    return response.error_code, response.expiry_timestamp_ms


def token_client(
    token: CreateDelegationTokenResponse, mechanism: str = SCRAM_SHA_256
) -> SaslClient:
    password = token_password(bytes(token.hmac))
    return ScramClient(mechanism, token.token_id, password, SystemRandom(), is_token=True)


def test_new_token_has_owner_and_default_times(alice: SaslConnection) -> None:
    token = create(alice)
    assert (token.error_code, token.principal_type, token.principal_name) == (0, "User", USER)
    assert token.expiry_timestamp_ms == token.issue_timestamp_ms + DAY_MS
    assert token.max_timestamp_ms == token.issue_timestamp_ms + 7 * DAY_MS
    assert len(token.hmac) == 64


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_client_logs_in_as_the_owner_of_its_token(
    cluster: LocalCluster, alice: SaslConnection, mechanism: str
) -> None:
    token = create(alice)
    with SaslConnection(sasl_servers(cluster)) as connection:
        response = connection.log_in(token_client(token, mechanism))
        assert response.error_code == 0
        assert DAY_MS - 60_000 < response.session_lifetime_ms <= DAY_MS
        assert connection.ask(MetadataRequest(topics=()), MetadataResponse).brokers
        again = create(connection)
        assert again.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert again.principal_name == USER


def test_wrong_hmac_and_unknown_token_cannot_log_in(
    cluster: LocalCluster, alice: SaslConnection
) -> None:
    token = create(alice)
    random = SystemRandom()
    for user, password in ((token.token_id, "wrong"), ("unknown", "wrong")):
        with SaslConnection(sasl_servers(cluster)) as connection:
            client = ScramClient(SCRAM_SHA_256, user, password, random, is_token=True)
            assert connection.log_in(client).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_owner_and_renewers_renew_a_token(alice: SaslConnection, bob: SaslConnection) -> None:
    token = create(alice, TokenRenewer("User", "bob"))
    code, first = renew(alice, token.hmac, 2 * DAY_MS)
    assert code == 0
    code, second = renew(bob, token.hmac, 100 * DAY_MS)
    assert (code, second) == (0, token.max_timestamp_ms)
    assert first < second


def test_others_cannot_renew_or_expire_a_token(alice: SaslConnection, bob: SaslConnection) -> None:
    token = create(alice)
    assert renew(bob, token.hmac) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, -1)
    assert expire(bob, token.hmac) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, -1)
    assert renew(bob, b"unknown") == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)


@pytest.mark.parametrize("renewer", [("User", ""), ("Group", "bob"), ("", "bob")])
def test_renewer_must_be_a_named_user(alice: SaslConnection, renewer: tuple[str, str]) -> None:
    assert create(alice, TokenRenewer(*renewer)).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_deleted_token_cannot_be_used(cluster: LocalCluster, alice: SaslConnection) -> None:
    token = create(alice)
    assert expire(alice, token.hmac)[0] == 0
    assert renew(alice, token.hmac)[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    with SaslConnection(sasl_servers(cluster)) as connection:
        response = connection.log_in(token_client(token))
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_expired_token_is_deleted(cluster: LocalCluster, alice: SaslConnection) -> None:
    token = create(alice, lifetime_ms=1)
    registry, _ = cluster.cluster.open_registry()

    def is_deleted() -> bool:
        with registry.lock:
            return registry.tree.find(f"/delegation_token/tokens/{token.token_id}") is None

    eventually(is_deleted, "the controller deletes the expired token")
    with SaslConnection(sasl_servers(cluster)) as connection:
        response = connection.log_in(token_client(token))
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_describe_returns_the_requested_tokens(alice: SaslConnection, bob: SaslConnection) -> None:
    mine, for_bob = create(alice), create(bob, TokenRenewer("User", USER))

    def described(*owners: str) -> set[str]:
        request = DescribeDelegationTokenRequest(
            owners=tuple(TokenOwner("User", each) for each in owners)
        )
        response = alice.ask(request, DescribeDelegationTokenResponse)
        return {each.token_id for each in response.tokens}

    assert {mine.token_id, for_bob.token_id} <= described(USER)
    assert mine.token_id not in described("bob")
    assert described() == set()
    everything = alice.ask(DescribeDelegationTokenRequest(), DescribeDelegationTokenResponse)
    (found,) = (each for each in everything.tokens if each.token_id == for_bob.token_id)
    assert (found.principal_name, found.renewers) == ("bob", (("User", USER),))
    assert found.hmac == for_bob.hmac


def test_znode_has_the_format_of_kafka(cluster: LocalCluster, alice: SaslConnection) -> None:
    token = create(alice, TokenRenewer("User", "bob"), lifetime_ms=1000 * DAY_MS)
    registry, _ = cluster.cluster.open_registry()
    with registry.lock:
        node = registry.tree.find(f"/delegation_token/tokens/{token.token_id}")
        assert node is not None
        content = json.loads(node.data)
    assert content == {
        "version": 3,
        "owner": "User%3Aalice",
        "tokenRequester": "User%3Aalice",
        "renewers": ["User%3Abob"],
        "issueTimestamp": token.issue_timestamp_ms,
        "maxTimestamp": token.issue_timestamp_ms + 7 * DAY_MS,
        "expiryTimestamp": token.expiry_timestamp_ms,
        "tokenId": token.token_id,
    }


def test_tokens_survive_a_restart(cluster: LocalCluster, alice: SaslConnection) -> None:
    token = create(alice)
    cluster.brokers[1].stop()
    cluster.brokers[1].start()
    with SaslConnection(sasl_servers(cluster)) as connection:
        assert connection.log_in(token_client(token)).error_code == 0


def test_plaintext_listener_and_missing_secret_key_are_refused(cluster: LocalCluster) -> None:
    with Raw(cluster.brokers[1].address) as raw:
        assert create(raw).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    with sasl_cluster() as other, SaslConnection(sasl_servers(other)) as connection:
        connection.log_in(client_of(PLAIN))
        assert create(connection).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        described = connection.ask(
            DescribeDelegationTokenRequest(), DescribeDelegationTokenResponse
        )
        assert described.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
