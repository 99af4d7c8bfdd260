"""Security settings of a client: Kafka's names, and librdkafka's names for the same settings. Pure.

    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-256
    sasl.username=alice                     or sasl.jaas.config=…ScramLoginModule required username="alice" …;
    sasl.password=…
    ssl.truststore.location=ca.pem          or ssl.ca.location=ca.pem
    ssl.truststore.type=PEM

`parse_client_security` checks the settings and returns a ClientSecurity. Errors, logs and `repr` contain no secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from barnabas.errors import ConfigError
from barnabas.model import SecurityProtocol
from barnabas.security.jaas import JAAS_CONFIG as JAAS
from barnabas.security.jaas import JaasLine, parse_jaas
from barnabas.security.sasl.mechanism import LOGIN_MODULES, MECHANISMS, OAUTHBEARER, PLAIN
from barnabas.security.token_request import (
    TOKEN_URL,
    TokenRequest,
    parse_extensions,
    parse_token_request,
    token_path,
)

PROTOCOL = "security.protocol"
MECHANISM = "sasl.mechanism"
USERNAME = "sasl.username"
PASSWORD = "sasl.password"
ENDPOINT_IDENTIFICATION = "ssl.endpoint.identification.algorithm"
TOKEN = "sasl.oauthbearer.token"
TOKEN_FILE = "sasl.oauthbearer.token.file"
ENCODE_CREDENTIALS = "sasl.oauthbearer.header.urlencode"

SETTINGS = {
    PROTOCOL: "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
    "ssl.truststore.location": "File with the certificates of trusted authorities",
    "ssl.truststore.type": "PEM or PKCS12",
    "ssl.truststore.password": "Password of the trust store",
    "ssl.truststore.certificates": "Trusted certificates as PEM text, instead of a file",
    "ssl.keystore.location": "File with the client's private key and certificate",
    "ssl.keystore.type": "PEM or PKCS12",
    "ssl.keystore.password": "Password of the key store",
    "ssl.keystore.key": "Private key as PEM text, instead of a file",
    "ssl.keystore.certificate.chain": "Certificate chain as PEM text, instead of a file",
    "ssl.key.password": "Password of the private key",
    "ssl.certificate.location": "PEM file with the client's certificate chain; needs ssl.key.location",
    "ssl.key.location": "PEM file with the client's private key; needs ssl.certificate.location",
    "ssl.enabled.protocols": "Allowed TLS versions",
    "ssl.protocol": "Highest TLS version",
    "ssl.cipher.suites": "Allowed TLS ciphers",
    ENDPOINT_IDENTIFICATION: "https: verify the host name; empty or none: do not",
    MECHANISM: f"{', '.join(MECHANISMS[:-1])} or {OAUTHBEARER}",
    JAAS: "Login module with its options, as in Kafka's clients",
    USERNAME: "User name, instead of a JAAS line",
    PASSWORD: "Password, instead of a JAAS line",
    TOKEN: "Token for OAUTHBEARER",
    TOKEN_FILE: "File with the token for OAUTHBEARER, read at every login",
    TOKEN_URL: "URL of the OAuth server that issues tokens for the JAAS line, or file: URL of a token",
    ENCODE_CREDENTIALS: "true: send the client id and secret percent-encoded to the OAuth server",
}
"""Supported settings, each with its meaning."""

ALIASES = {
    "sasl.mechanisms": MECHANISM,
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
"""librdkafka's name → Kafka's name."""
PEM_ALIASES = {"ssl.ca.location": "ssl.truststore.type"}
"""Names of librdkafka for PEM files → Kafka's setting for the type of the file."""

SECRET_SETTINGS = frozenset(
    {
        *("ssl.truststore.password", "ssl.keystore.password", "ssl.keystore.key"),
        *("ssl.key.password", "ssl.key.pem", JAAS, PASSWORD, TOKEN),
    }
)
"""Settings that must not be shown, and must not be given on a command line."""
CREDENTIALS = frozenset({USERNAME, PASSWORD})
TOKEN_SOURCES = frozenset({TOKEN, TOKEN_FILE, TOKEN_URL})

ENVIRONMENT_PREFIX = "BARNABAS_"
NO_VERIFICATION = ("", "none")

TokenCallback = Callable[[], str]


class Login(Struct, frozen=True):
    """Credentials of a SASL login. For OAUTHBEARER, one of the four token fields is set; else user and password."""

    mechanism: str
    username: str = ""
    password: str = ""
    is_delegation_token: bool = False
    """The user name and password are the id and the HMAC of a delegation token."""
    extensions: tuple[tuple[str, str], ...] = ()
    """Extensions of OAUTHBEARER, as pairs of name and value."""
    token: str | None = None
    token_file: str | None = None
    token_request: TokenRequest | None = None
    token_callback: TokenCallback | None = None

    def __repr__(self) -> str:
        return f"Login({self.mechanism} {self.username})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("mechanism", self.mechanism), ("username", self.username)]


class ClientSecurity(Struct, frozen=True):
    """How a client connects to brokers. `settings` are the settings it was made from, under Kafka's names."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    settings: Mapping[str, str] = {}
    login: Login | None = None

    def __repr__(self) -> str:
        login = self.login
        who = "" if login is None else f" {login.mechanism} {login.username}".rstrip()
        return f"ClientSecurity({self.protocol.name}{who})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("protocol", self.protocol.name), ("login", self.login)]

    @property
    def verifies_host(self) -> bool:
        """Whether the broker's certificate must name its host."""
        algorithm = self.settings.get(ENDPOINT_IDENTIFICATION, "https")
        return algorithm.lower() not in NO_VERIFICATION


PLAINTEXT = ClientSecurity()


def is_security_setting(name: str) -> bool:
    return name in SETTINGS or name in ALIASES


def select_security_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of this module among the settings of a client, with Kafka's names.

    >>> select_security_settings({"ssl.ca.location": "ca.pem", "client.id": "x"})
    {'ssl.truststore.location': 'ca.pem', 'ssl.truststore.type': 'PEM'}
    """
    found = {}
    for name, value in settings.items():
        if is_security_setting(name):
            found[ALIASES.get(name, name)] = value.strip()
            if name in PEM_ALIASES:
                found.setdefault(PEM_ALIASES[name], "PEM")
    return found


def merge_settings(layers: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Merge settings from several places. A later place has precedence.

    A JAAS line replaces a user name and a password of earlier places, and the reverse. A token, a token file or a token
    URL replaces all three of earlier places.
    """
    merged: dict[str, str] = {}
    for layer in layers:
        found = select_security_settings(layer)
        if JAAS in found:
            for name in CREDENTIALS:
                merged.pop(name, None)
        elif found.keys() & CREDENTIALS:
            merged.pop(JAAS, None)
        if found.keys() & TOKEN_SOURCES:
            for name in TOKEN_SOURCES:
                merged.pop(name, None)
        merged.update(found)
    return merged


def environment_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in the environment, such as BARNABAS_SECURITY_PROTOCOL. Ignores other variables.

    >>> environment_settings({"BARNABAS_SASL_USERNAME": "alice", "HOME": "/"})
    {'sasl.username': 'alice'}
    """
    found = {}
    for name in (*SETTINGS, *ALIASES):
        value = environment.get(environment_variable(name))
        if value:
            found[name] = value
    return found


def environment_variable(name: str) -> str:
    """
    >>> environment_variable("security.protocol")
    'BARNABAS_SECURITY_PROTOCOL'
    """
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_")


def parse_assignment(text: str) -> tuple[str, str]:
    """Parse `name=value` of a command line. Raises ConfigError for an unknown name, and for a secret."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise ConfigError("-X", "write NAME=VALUE, as in security.protocol=SSL")
    if not is_security_setting(name):
        from difflib import get_close_matches

        near = get_close_matches(name, (*SETTINGS, *ALIASES), n=1)
        hint = f"did you mean {near[0]}?" if near else "see docs/security.md for the settings"
        raise ConfigError("-X", f"unknown setting {name!r}; {hint}")
    if name in SECRET_SETTINGS:
        variable = environment_variable(name)
        why = "other users can see the command line; set it in a file (--command-config)"
        raise ConfigError(f"-X {name}", f"{why}, or in ${variable}")
    return name, value.strip()


def parse_client_security(
    settings: Mapping[str, str], *, token_callback: TokenCallback | None = None
) -> ClientSecurity:
    """Check the settings. Raises ConfigError.

    Ignores settings that do not concern security, and those that the protocol does not use, as Kafka's clients do.
    """
    found = select_security_settings(settings)
    protocol = parse_protocol(found.get(PROTOCOL) or "PLAINTEXT")
    if protocol.has_tls:
        check_tls_settings(found)
    login = parse_login(found, token_callback) if protocol.has_sasl else None
    return ClientSecurity(protocol, found, login)


def parse_protocol(text: str) -> SecurityProtocol:
    try:
        return SecurityProtocol[text.upper()]
    except KeyError:
        names = ", ".join(each.name for each in SecurityProtocol)
        raise ConfigError(PROTOCOL, f"{text!r} is not one of {names}") from None


def check_tls_settings(settings: Mapping[str, str]) -> None:
    pairs = (
        ("ssl.certificate.location", "ssl.key.location"),
        ("ssl.keystore.certificate.chain", "ssl.keystore.key"),
    )
    for one, other in pairs:
        for given, missing in ((one, other), (other, one)):
            if settings.get(given) and not settings.get(missing):
                raise ConfigError(missing, f"is missing; {given} needs it")
    algorithm = settings.get(ENDPOINT_IDENTIFICATION, "https").lower()
    if algorithm not in ("https", *NO_VERIFICATION):
        why = f"{algorithm!r} is not supported; use https, or leave it empty to skip the check"
        raise ConfigError(ENDPOINT_IDENTIFICATION, why)


def parse_login(settings: Mapping[str, str], token_callback: TokenCallback | None) -> Login:
    mechanism = settings.get(MECHANISM) or ("" if token_callback is None else OAUTHBEARER)
    if mechanism.upper() not in MECHANISMS:
        what = f"{mechanism!r} is not supported" if mechanism else "is missing"
        raise ConfigError(MECHANISM, f"{what}; set {SETTINGS[MECHANISM]}")
    mechanism = mechanism.upper()
    line = parse_jaas_line(settings[JAAS], mechanism) if settings.get(JAAS) else None
    if mechanism == OAUTHBEARER:
        return parse_token_login(settings, line, token_callback)
    options = {} if line is None else line.options
    username = options.get("username") or settings.get(USERNAME, "")
    password = options.get("password") or settings.get(PASSWORD, "")
    for name, option, value in ((USERNAME, "username", username), (PASSWORD, "password", password)):
        if not value:
            if line is not None:
                raise ConfigError(JAAS, f'the line has no {option}; add {option}="…"')
            variable = environment_variable(name)
            raise ConfigError(name, f"is missing; set it in a properties file or in ${variable}")
    is_token = options.get("tokenauth", "").lower() == "true"
    if is_token and mechanism == PLAIN:
        raise ConfigError(JAAS, "tokenauth needs a SCRAM mechanism; change sasl.mechanism")
    return Login(mechanism, username, password, is_token)


def parse_jaas_line(text: str, mechanism: str) -> JaasLine:
    """Parse the JAAS line of a client. Its login module must be that of the mechanism."""
    line = parse_jaas(text)
    module = LOGIN_MODULES[mechanism]
    if line.module != module:
        raise ConfigError(
            JAAS, f"{line.module} is not the login module of {mechanism}; use {module}"
        )
    return line


def parse_token_login(
    settings: Mapping[str, str], line: JaasLine | None, callback: TokenCallback | None
) -> Login:
    options = {} if line is None else line.options
    token, file = settings.get(TOKEN) or None, settings.get(TOKEN_FILE) or None
    url = settings.get(TOKEN_URL)
    request = None
    if url and callback is None and token is None and file is None:
        file = token_path(url)
        if file is None:
            encodes = settings.get(ENCODE_CREDENTIALS, "").strip().lower() == "true"
            request = parse_token_request(url, options, JAAS, encodes_credentials=encodes)
    if callback is None and token is None and file is None and request is None:
        why = f"is missing; set {TOKEN_FILE} to a file with the token, or {TOKEN_URL} to an OAuth server"
        raise ConfigError(TOKEN_FILE, why)
    return Login(
        OAUTHBEARER,
        extensions=parse_extensions(options),
        token=token,
        token_file=file,
        token_request=request,
        token_callback=callback,
    )
