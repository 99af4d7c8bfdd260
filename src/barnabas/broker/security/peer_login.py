"""The login of this broker at another one: the SASL mechanism between brokers, and logins again before they expire."""

from __future__ import annotations

import asyncio
from random import Random

from barnabas.broker.security.login_settings import PeerLogin
from barnabas.broker.security.peer_tokens import PeerTokens
from barnabas.client.connection import BrokerConnection
from barnabas.errors import ErrorCode
from barnabas.printable import printable
from barnabas.security.sasl.mechanism import PLAIN, SaslClient, SaslFailed
from barnabas.security.sasl.oauthbearer import BearerClient
from barnabas.security.sasl.plain import PlainClient
from barnabas.security.sasl.scram import ScramClient
from barnabas.tasks import in_thread
from barnabas.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

EXCHANGE_SECONDS = 10.0
STEPS_MAX = 4
RENEWAL_PART = 0.85
"""Part of the lifetime of a login after which this broker logs in again, as in Kafka's clients."""


async def log_in(
    connection: BrokerConnection, peer: PeerLogin, random: Random, tokens: PeerTokens
) -> None:
    """Log in, and again before the login expires. Raises ConnectionError."""
    lifetime_ms = await authenticate(connection, peer, random, tokens)
    if not lifetime_ms:
        return

    async def renew() -> float:
        return RENEWAL_PART * await authenticate(connection, peer, random, tokens) / 1000

    loop = asyncio.get_running_loop()
    connection.renew_login_at(loop.time() + RENEWAL_PART * lifetime_ms / 1000, renew)


async def authenticate(
    connection: BrokerConnection, peer: PeerLogin, random: Random, tokens: PeerTokens
) -> int:
    """Log in once. Returns the lifetime of the login in milliseconds; 0: it does not expire."""
    try:
        client = await create_client(peer, random, tokens)
        await start(connection, peer.mechanism)
        message: bytes | None = client.start()
        response = SaslAuthenticateResponse()
        for _ in range(STEPS_MAX):
            if message is None:
                return response.session_lifetime_ms
            response = await connection.exchange(
                SaslAuthenticateRequest(auth_bytes=message),
                SaslAuthenticateResponse,
                timeout_s=EXCHANGE_SECONDS,
                is_login=True,
            )
            if response.error_code:
                if isinstance(client, BearerClient):
                    tokens.discard(client.find_token())
                raise refused(response.error_code, peer, response.error_message)
            # SCRAM computes a hash in many iterations.
            message = await in_thread(client.respond, bytes(response.auth_bytes))
    except (SaslFailed, TimeoutError) as error:
        raise ConnectionError(f"login at another broker failed: {error}") from error
    raise ConnectionError("login at another broker failed: it asks for too many messages")


async def start(connection: BrokerConnection, mechanism: str) -> None:
    response = await connection.exchange(
        SaslHandshakeRequest(mechanism=mechanism),
        SaslHandshakeResponse,
        timeout_s=EXCHANGE_SECONDS,
        is_login=True,
    )
    if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise ConnectionError(
            f"UNSUPPORTED_SASL_MECHANISM: the other broker has {', '.join(response.mechanisms)}; "
            "set sasl.mechanism.inter.broker.protocol to one of them"
        )
    if response.error_code:
        raise ConnectionError(f"login at another broker failed: {name_of(response.error_code)}")


async def create_client(peer: PeerLogin, random: Random, tokens: PeerTokens) -> SaslClient:
    if peer.token is not None:
        try:
            token = await tokens.find(peer.token)
        except ConnectionError as error:
            raise ConnectionError(
                f"no OAuth token for the login at another broker: {error}"
            ) from error
        return BearerClient(lambda: token, dict(peer.extensions))
    if peer.mechanism == PLAIN:
        return PlainClient(peer.user, peer.password)
    return ScramClient(peer.mechanism, peer.user, peer.password, random)


def refused(code: int, peer: PeerLogin, message: str | None) -> ConnectionError:
    if peer.token is None:
        who, hint = f"user {peer.user}", f"the JAAS line of mechanism {peer.mechanism}"
    else:
        who, hint = "this broker with its OAuth token", "the issuer, the audience and the clock"
    why = f"{name_of(code)}: the other broker refuses the login of {who}"
    return ConnectionError(f"{why}: {printable(message or '-', 200)}; check {hint}")


def name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
