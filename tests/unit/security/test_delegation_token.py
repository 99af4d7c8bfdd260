from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from barnabas.errors import ApiError, ErrorCode, RegistryError
from barnabas.security import delegation_token as model
from barnabas.security.delegation_token import TokenLifetimes
from barnabas.security.principal import Principal

ALICE, BOB = Principal("alice"), Principal("CN=bob, O=x")
LIFETIMES = TokenLifetimes(max_ms=1000, renewal_ms=100)


def new_token(lifetime_ms: int = -1) -> model.DelegationToken:
    return model.create_token(
        *(ALICE, ALICE, (BOB,), lifetime_ms, LIFETIMES), now_ms=50, random=Random(1)
    )


def test_times_of_a_new_token() -> None:
    assert (new_token().expires_ms, new_token().max_ms) == (150, 1050)
    assert (new_token(30).expires_ms, new_token(30).max_ms) == (80, 80)
    assert new_token(5000).max_ms == 1050


def test_token_is_renewed_up_to_its_maximum() -> None:
    token = new_token()
    assert model.renew_token(token, BOB, -1, LIFETIMES, 120).expires_ms == 220
    assert model.renew_token(token, ALICE, 5000, LIFETIMES, 120).expires_ms == 1050


def test_expired_token_cannot_be_renewed() -> None:
    with pytest.raises(ApiError) as raised:
        model.renew_token(new_token(), ALICE, -1, LIFETIMES, 151)
    assert raised.value.code == ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_owner_deletes_even_an_expired_token() -> None:
    assert model.expire_token(new_token(), ALICE, -1, 5000) is None
    with pytest.raises(ApiError, match="DELEGATION_TOKEN_EXPIRED"):
        model.expire_token(new_token(), ALICE, 10, 5000)
    with pytest.raises(ApiError, match="DELEGATION_TOKEN_OWNER_MISMATCH"):
        model.expire_token(new_token(), Principal("mallory"), -1, 60)


def test_znode_is_decoded_as_it_was_encoded() -> None:
    token = new_token()
    assert model.decode_token("/t", model.encode_token(token)) == token
    former = model.encode_token(token).replace(b'"version":3', b'"version":2')
    assert model.decode_token("/t", former) == replace(token, requester=token.owner)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b'{"version":4}', b'{"version":1}', b"[" * 100_000]
)
def test_invalid_znode_is_refused(data: bytes) -> None:
    with pytest.raises(RegistryError):
        model.decode_token("/t", data)


@pytest.mark.parametrize("data", [b"", b"a/b", b"\xff"])
def test_invalid_notification_is_refused(data: bytes) -> None:
    with pytest.raises(RegistryError):
        model.decode_token_change("/t", data)


def test_id_never_looks_like_an_option() -> None:
    random = Random(1)
    ids = [model.create_id(random) for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert not any(each.startswith("-") for each in ids)
