"""The server side of one login, for each mechanism. login.py passes the messages of the client to it.

    exchange = create_exchange("SCRAM-SHA-256", …)
    step = await exchange.receive(message)             reply to the client; `login` is set if the client has logged in

`receive` raises LoginFailed. Its text goes to the audit log; clients get the same answer for every reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import NamedTuple, Protocol

from barnabas.errors import BarnabasError
from barnabas.security.principal import Principal
from barnabas.security.sasl.mechanism import SaslFailed
from barnabas.security.sasl.oauthbearer import INVALID_TOKEN, parse_bearer
from barnabas.security.sasl.plain import check_password, parse_plain
from barnabas.security.sasl.scram import ScramCredential, ScramServer, parse_first


class LoginFailed(BarnabasError):
    """A client cannot log in. The text contains no secret. `user` is the name that the client claims."""

    def __init__(self, reason: str, user: str = "") -> None:
        super().__init__(reason)
        self.user = user


class LoggedIn(NamedTuple):
    """`expires_ms` is the wall-clock time at which the credential expires; None: never."""

    principal: Principal
    expires_ms: int | None = None
    is_token: bool = False
    """Whether the client has used a delegation token."""


class Step(NamedTuple):
    reply: bytes
    login: LoggedIn | None = None


class Exchange(Protocol):
    failure: LoginFailed | None
    """Why the client cannot log in. Set when the client has to confirm it before it gets the error."""

    async def receive(self, message: bytes) -> Step:
        """Raises LoginFailed."""


class FoundCredential(NamedTuple):
    """`login` is None for the fake credential of an unknown user or token."""

    credential: ScramCredential
    login: LoggedIn | None


FindCredential = Callable[[str, str, bool], Awaitable[FoundCredential]]
"""Finds the credential of (mechanism, user or token id, is_token)."""

VerifyToken = Callable[[str], Awaitable[LoggedIn]]
"""Verifies an OAuth token. Raises LoginFailed."""


class PlainExchange:
    def __init__(self, users: Mapping[str, str]) -> None:
        self.users = users
        self.failure: LoginFailed | None = None

    async def receive(self, message: bytes) -> Step:
        try:
            user, password = parse_plain(message)
        except SaslFailed as error:
            raise LoginFailed(str(error)) from None
        if not check_password(self.users, user, password):
            raise LoginFailed("wrong password or unknown user", user)
        return Step(b"", LoggedIn(Principal(user)))


class ScramExchange:
    def __init__(self, mechanism: str, find: FindCredential, random: Random) -> None:
        self.mechanism = mechanism
        self.find = find
        self.random = random
        self.server: ScramServer | None = None
        self.user = ""
        self.login: LoggedIn | None = None
        self.failure: LoginFailed | None = None

    async def receive(self, message: bytes) -> Step:
        try:
            if self.server is None:
                return Step(await self.start(message))
            reply = self.server.finish(message)
        except SaslFailed as error:
            raise LoginFailed(str(error), self.user) from None
        if self.login is None:
            raise LoginFailed("wrong password or unknown user", self.user)
        return Step(reply, self.login)

    async def start(self, message: bytes) -> bytes:
        first = parse_first(message)
        self.user = first.user
        credential, self.login = await self.find(self.mechanism, first.user, first.is_token)
        self.server = ScramServer(self.mechanism, first, credential, self.random)
        return self.server.challenge()


class BearerExchange:
    def __init__(self, verify: VerifyToken) -> None:
        self.verify = verify
        self.failure: LoginFailed | None = None

    async def receive(self, message: bytes) -> Step:
        if self.failure is not None:
            raise self.failure
        try:
            found = parse_bearer(message)
        except SaslFailed as error:
            raise LoginFailed(str(error)) from None
        try:
            login = await self.verify(found.token)
            if found.authorization_id not in ("", login.principal.name):
                raise LoginFailed(
                    "the authorization id differs from the subject of the token",
                    login.principal.name,
                )
        except LoginFailed as failure:
            self.failure = failure
            return Step(INVALID_TOKEN)
        return Step(b"", login)
