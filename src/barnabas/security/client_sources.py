"""Where a client's security settings come from: a mapping, a properties file, or the environment.

    BARNABAS_CLIENT_CONFIG=client.properties      a file
    BARNABAS_SASL_PASSWORD=…                      a single setting, which has precedence over the file

Most clients need none of this. So the modules for files, TLS and logins are imported when they are used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from barnabas.errors import ConfigError
from barnabas.security.client_settings import (
    ENDPOINT_IDENTIFICATION,
    TOKEN_FILE,
    ClientSecurity,
    Login,
    TokenCallback,
    environment_settings,
    merge_settings,
    parse_client_security,
)
from barnabas.security.sasl import mechanism

if TYPE_CHECKING:
    from ssl import SSLContext

    from barnabas.security.cached_token import CachedToken
    from barnabas.security.sasl.mechanism import SaslClient
    from barnabas.security.token_request import TokenRequest

CONFIG_VARIABLE = "BARNABAS_CLIENT_CONFIG"
TOKEN_BYTES_MAX = 1 << 20
PEM_FILES = {
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
"""Settings of librdkafka that name a file → Kafka's settings with the content."""

cached_tokens: dict[TokenRequest, CachedToken] = {}
"""Tokens of OAuth servers. All clients of the process share them: a Spark task is a client of its own."""
requesting = Lock()

SecuritySource = Mapping[str, str] | str | os.PathLike[str] | ClientSecurity | None
"""Settings, the path of a properties file, or None for the environment."""


def load_security(
    source: SecuritySource, *, token_callback: TokenCallback | None = None
) -> ClientSecurity:
    """Return the security settings of a client. Raises ConfigError."""
    if isinstance(source, ClientSecurity):
        return source
    if source is None:
        settings: Mapping[str, str] = read_environment()
    elif isinstance(source, Mapping):
        settings = source
    else:
        settings = read_settings_file(source)
    return parse_client_security(settings, token_callback=token_callback)


def read_environment(
    environment: Mapping[str, str] = os.environ, *, default_file: str | None = None
) -> dict[str, str]:
    """Return the settings of the environment. `default_file` is the file if the environment names none."""
    path = environment.get(CONFIG_VARIABLE) or default_file
    file = {} if path is None else read_settings_file(path)
    return merge_settings([file, environment_settings(environment)])


def read_settings_file(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the properties of a file. Raises ConfigError."""
    from barnabas.config.properties import parse_properties

    try:
        text = Path(path).read_text(encoding="iso-8859-1")
    except OSError as error:
        raise ConfigError(os.fspath(path), f"cannot be read: {error.strerror}") from None
    return parse_properties(text, os.fspath(path))


def read_token(login: Login) -> str:
    """Return the token of a login with OAUTHBEARER: a new one, if the settings name a file or an OAuth server.

    Raises ConfigError, SaslFailed if the server refuses to issue a token, and ConnectionError if it fails.
    """
    if login.token_callback is not None:
        return login.token_callback()
    if login.token is not None:
        return login.token
    if login.token_request is not None:
        return request_token(login.token_request)
    assert login.token_file is not None, "checked by parse_client_security"
    try:
        with Path(login.token_file).open("rb") as file:
            data = file.read(TOKEN_BYTES_MAX)
    except OSError as error:
        why = f"{login.token_file} cannot be read: {error.strerror}"
        raise ConfigError(TOKEN_FILE, why) from None
    token = data.decode("ascii", "replace").strip()
    if not token.isprintable() or not token.isascii() or not token:
        raise ConfigError(TOKEN_FILE, f"{login.token_file} does not contain a token")
    return token


def request_token(request: TokenRequest) -> str:
    """Return a token of the OAuth server, or a former one. Raises SaslFailed and ConnectionError."""
    from barnabas.security import token_request
    from barnabas.security.cached_token import CachedToken
    from barnabas.world.download import UrlDownloader
    from barnabas.world.ports import DownloadRefused

    with requesting:
        cached = cached_tokens.setdefault(request, CachedToken())
        token = cached.current(monotonic())
        if token is not None:
            return token
        requested_at = monotonic()
        try:
            document = UrlDownloader().post(
                request.url,
                request.headers,
                request.body,
                timeout_s=token_request.REQUEST_SECONDS,
                bytes_max=token_request.RESPONSE_BYTES_MAX,
            )
            issued = token_request.parse_token_response(document)
        except (ConnectionError, ValueError) as error:
            token = cached.request_failed(monotonic())
            if token is not None:
                return token
            why = f"the OAuth server issues no token: {error}"
            if isinstance(error, DownloadRefused | ValueError):
                raise mechanism.SaslFailed(why) from error
            raise ConnectionError(why) from error
        cached.store(issued, requested_at)
        return issued.token


def discard_token(login: Login) -> None:
    """Request another token for the next login: a broker has refused the current one."""
    if login.token_request is not None:
        cached_tokens.pop(login.token_request, None)


def create_sasl_client(login: Login) -> SaslClient:
    """Return the client half of one login. Raises ConfigError for an unreadable token, and SaslFailed."""
    from random import SystemRandom

    from barnabas.security.sasl.oauthbearer import BearerClient
    from barnabas.security.sasl.plain import PlainClient
    from barnabas.security.sasl.scram import ScramClient

    match login.mechanism:
        case mechanism.PLAIN:
            return PlainClient(login.username, login.password)
        case mechanism.OAUTHBEARER:
            return BearerClient(lambda: read_token(login), dict(login.extensions))
        case name:
            is_token = login.is_delegation_token
            return ScramClient(
                name, login.username, login.password, SystemRandom(), is_token=is_token
            )


def create_tls_context(security: ClientSecurity) -> SSLContext:
    """Read the files of the settings, and return the context for connections. Raises ConfigError."""
    from barnabas.security.tls.context import client_context
    from barnabas.security.tls.settings import read_tls_settings

    settings = dict(security.settings)
    for source, target in PEM_FILES.items():
        if settings.get(source):
            settings[target] = read_pem(source, settings[source])
    given = {name: value for name, value in settings.items() if value}
    if not security.verifies_host:
        given[ENDPOINT_IDENTIFICATION] = ""
    return client_context(read_tls_settings(given.get))


def read_pem(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ConfigError(name, f"{path} cannot be read: {error.strerror}") from None
