"""SCRAM users: set, changed, removed and described while the broker runs, and kept in Kafka's znodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import SystemRandom

import pytest

from barnabas import LocalCluster
from barnabas.broker.security.credentials import store_scram_credential
from barnabas.errors import ErrorCode
from barnabas.security.sasl.mechanism import SCRAM_MECHANISMS, SCRAM_SHA_256, SCRAM_SHA_512
from barnabas.security.sasl.scram import create_credential
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.wire.messages.describe_user_scram_credentials import (
    DescribedUserName,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from support.waiting import eventually
from tests.compatibility.raw import Raw
from tests.security.logins import (
    PASSWORD,
    USER,
    SaslConnection,
    alter_users,
    client_of,
    remove_password,
    sasl_cluster,
    sasl_servers,
    set_password,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with sasl_cluster() as running:
        yield running


def can_log_in(cluster: LocalCluster, mechanism: str, user: str, password: str) -> bool:
    with SaslConnection(sasl_servers(cluster)) as connection:
        return not connection.log_in(client_of(mechanism, user, password)).error_code


def describe(cluster: LocalCluster, *users: str) -> DescribeUserScramCredentialsResponse:
    with Raw(cluster.brokers[1].address) as raw:
        names = tuple(DescribedUserName(each) for each in users)
        return raw.ask(
            DescribeUserScramCredentialsRequest(users=names), DescribeUserScramCredentialsResponse
        )


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
@pytest.mark.parametrize("user", ["carol", "CN=größe, O=a b/*"])
def test_user_can_log_in_until_its_password_is_removed(
    cluster: LocalCluster, mechanism: str, user: str
) -> None:
    assert set_password(cluster, user, mechanism, "first") == 0
    assert can_log_in(cluster, mechanism, user, "first")
    assert set_password(cluster, user, mechanism, "second", 8192) == 0
    assert not can_log_in(cluster, mechanism, user, "first")
    assert can_log_in(cluster, mechanism, user, "second")
    (described,) = describe(cluster, user).results
    assert [each.iterations for each in described.credential_infos] == [8192]
    assert remove_password(cluster, user, mechanism) == 0
    assert not can_log_in(cluster, mechanism, user, "second")
    assert remove_password(cluster, user, mechanism) == ErrorCode.RESOURCE_NOT_FOUND


def test_describe_shows_mechanisms_and_iterations_only(cluster: LocalCluster) -> None:
    response = describe(cluster)
    (alice,) = (each for each in response.results if each.user == USER)
    assert alice.credential_infos == ((1, 4096), (2, 4096))
    missing, empty, twice = describe(cluster, "nobody", "", "bob", "bob").results
    assert missing.error_code == empty.error_code == ErrorCode.RESOURCE_NOT_FOUND
    assert twice.error_code == ErrorCode.DUPLICATE_RESOURCE


def upsertion(user: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(user, mechanism, iterations, b"salt", b"salted")


def test_describe_refuses_too_many_users(cluster: LocalCluster) -> None:
    found = describe(cluster, *(str(number) for number in range(10_001)))
    assert found.error_code == ErrorCode.INVALID_REQUEST
    assert "10001 users in one request; the limit is 10000" in (found.error_message or "")
    assert len(describe(cluster, *(str(number) for number in range(10_000))).results) == 10_000


def test_invalid_changes_are_refused_per_user(cluster: LocalCluster) -> None:
    request = AlterUserScramCredentialsRequest(
        upsertions=(
            upsertion(""),
            upsertion("few", iterations=4095),
            upsertion("many", iterations=16385),
            upsertion("unknown", mechanism=3),
            upsertion("twice"),
            upsertion("both", mechanism=2),
        ),
        deletions=(ScramCredentialDeletion("twice", 1), ScramCredentialDeletion("both", 1)),
    )
    assert alter_users(cluster, request) == {
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "unknown": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
        "both": ErrorCode.RESOURCE_NOT_FOUND,
    }
    assert not {"twice", "both"} & {each.user for each in describe(cluster).results}


def test_empty_password_is_refused(cluster: LocalCluster) -> None:
    code = set_password(cluster, "empty", SCRAM_SHA_256, "")
    assert code == ErrorCode.UNACCEPTABLE_CREDENTIAL


def test_znode_has_the_format_of_kafka(cluster: LocalCluster) -> None:
    registry, _ = cluster.cluster.open_registry()
    with registry.lock:
        node = registry.tree.find(f"/config/users/{USER}")
        assert node is not None
        content = json.loads(node.data)
    assert content["version"] == 1
    assert content["config"].keys() == set(SCRAM_MECHANISMS)
    fields = [each.partition("=")[0] for each in content["config"][SCRAM_SHA_512].split(",")]
    assert fields == ["salt", "stored_key", "server_key", "iterations"]
    assert PASSWORD not in str(content)


def test_credential_stored_without_a_broker_is_used(cluster: LocalCluster) -> None:
    random = SystemRandom()
    credential = create_credential(SCRAM_SHA_256, "stored", random)
    registry, thread = cluster.cluster.open_registry()

    async def store() -> None:
        session = await registry.connect(10_000)
        await store_scram_credential(session, "dave", SCRAM_SHA_256, credential, random)
        await session.close()

    thread.run(store())
    eventually(
        lambda: can_log_in(cluster, SCRAM_SHA_256, "dave", "stored"), "the broker reads the change"
    )


def test_credentials_are_read_at_the_start(cluster: LocalCluster) -> None:
    cluster.brokers[1].stop()
    cluster.brokers[1].start()
    assert can_log_in(cluster, SCRAM_SHA_256, USER, PASSWORD)
