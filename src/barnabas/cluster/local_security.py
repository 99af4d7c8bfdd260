"""Security of a local cluster: its listeners, certificates and users, for LocalCluster and `barnabas up --secure`.

    SASL_SSL, SASL_PLAINTEXT    users log in with passwords (SCRAM, and PLAIN in tests)
    SSL                         users log in with certificates: CN=alice is User:alice

The brokers log in to each other as the user `broker`. Together with the administrator it is a super user.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from random import SystemRandom

from barnabas.broker.security.credentials import read_all_users, store_scram_credential
from barnabas.cluster.client_settings import ClientAccess, jaas_line, kafka_settings
from barnabas.cluster.security_files import SecurityFiles, generate_password
from barnabas.errors import ConfigError
from barnabas.metadata.registration import create_persistent_paths
from barnabas.model import SecurityProtocol
from barnabas.security.client_settings import ClientSecurity, parse_client_security
from barnabas.security.sasl.mechanism import PLAIN, SCRAM_MECHANISMS, SCRAM_SHA_512
from barnabas.security.sasl.scram import create_credential
from barnabas.world.ports import Registry

BROKER_USER = "broker"
ADMIN_USER = "admin"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
SECURED = tuple(each.name for each in SecurityProtocol if each is not SecurityProtocol.PLAINTEXT)
MECHANISM = SCRAM_SHA_512
"""The mechanism of the brokers, and of clients that choose none."""
SESSION_TIMEOUT_MS = 10_000
WILDCARDS = ("", "0.0.0.0", "::")


class LocalSecurity:
    """Users, files and broker settings of one cluster. `repr` does not show passwords."""

    def __init__(
        self,
        protocol: str,
        directory: Path,
        *,
        users: Mapping[str, str] | Collection[str] = (),
        hosts: Sequence[str] = (),
        acls: bool = False,
        plain: bool = False,
    ) -> None:
        """`users` are names with passwords, or only names. With `acls`, users need permissions. `hosts` are names of
        this machine beside localhost. `plain` enables the mechanism PLAIN. Reads the passwords of an earlier start.

        Raises ConfigError.
        """
        self.protocol = parse_protocol(protocol)
        self.files = SecurityFiles(directory)
        self.hosts = tuple(
            dict.fromkeys([*LOCAL_HOSTS, *(each for each in hosts if is_name(each))])
        )
        self.has_acls = acls
        self.mechanisms = (PLAIN, *SCRAM_MECHANISMS) if plain else SCRAM_MECHANISMS
        given = check_users(users)
        self.passwords: dict[str, str] = {}
        self.new_users: set[str] = set()
        """Users whose password is given or generated now: the registry may have another one."""
        for user in (BROKER_USER, ADMIN_USER, *given):
            known = given.get(user) or self.files.read_password(user)
            if known is None or given.get(user):
                self.new_users.add(user)
            self.passwords[user] = known or generate_password()

    def __repr__(self) -> str:
        return f"LocalSecurity({self.protocol.name}, users={sorted(self.passwords)})"

    @property
    def is_new(self) -> bool:
        """Whether the password of the administrator was generated now."""
        return self.protocol.has_sasl and ADMIN_USER in self.new_users

    # ---- brokers

    def broker_settings(self, listeners: Sequence[str]) -> dict[str, str]:
        """Return the settings of every broker whose listeners have these names."""
        settings: dict[str, str] = {}
        if self.protocol.has_tls:
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.files.broker),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.files.ca),
            }
        if self.protocol is SecurityProtocol.SSL:
            settings["ssl.client.auth"] = "required"
            settings["ssl.principal.mapping.rules"] = "RULE:^CN=([^,]+)$/$1/,DEFAULT"
        if self.protocol.has_sasl:
            settings["sasl.enabled.mechanisms"] = ",".join(self.mechanisms)
            settings["sasl.mechanism.inter.broker.protocol"] = MECHANISM
            for listener in listeners:
                settings |= self.login_settings(listener)
        if self.has_acls:
            settings["authorizer.class.name"] = "kafka.security.authorizer.AclAuthorizer"
            settings["super.users"] = f"User:{BROKER_USER};User:{ADMIN_USER}"
        return settings

    def login_settings(self, listener: str) -> dict[str, str]:
        """Return the JAAS lines of a listener."""
        password = self.passwords[BROKER_USER]
        lines = {MECHANISM: jaas_line(MECHANISM, username=BROKER_USER, password=password)}
        if PLAIN in self.mechanisms:
            users = {f"user_{user}": each for user, each in self.passwords.items()}
            lines[PLAIN] = jaas_line(PLAIN, **users)
        return {
            f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config": line
            for mechanism, line in lines.items()
        }

    # ---- before the brokers start

    def write_files(self) -> None:
        """Write certificates and generated passwords, unless an earlier start has written them. Raises ConfigError."""
        if self.protocol.has_sasl:
            self.files.write_passwords(self.passwords)
        if self.protocol.has_tls:
            with_certificate = () if self.protocol.has_sasl else self.passwords
            self.files.write_certificates(self.hosts, with_certificate)

    async def create_users(self, registry: Registry) -> None:
        """Store the credentials of the users. A password that was changed since an earlier start is kept."""
        if not self.protocol.has_sasl:
            return
        session = await registry.connect(SESSION_TIMEOUT_MS)
        random = SystemRandom()
        try:
            await create_persistent_paths(session)
            stored = (await read_all_users(session)).keys()
            for user, password in self.passwords.items():
                if user in stored and user not in self.new_users:
                    continue
                for mechanism in SCRAM_MECHANISMS:
                    credential = create_credential(mechanism, password, random)
                    await store_scram_credential(session, user, mechanism, credential, random)
        finally:
            await session.close()

    # ---- clients

    def access(
        self, servers: str, user: str | None = None, mechanism: str | None = None
    ) -> ClientAccess:
        """Return how a user connects; by default, the administrator. Raises ValueError for an unknown user."""
        user = user or ADMIN_USER
        if user not in self.passwords:
            known = ", ".join(sorted(self.passwords))
            raise ValueError(f"there is no user {user!r}; the users are {known}")
        has_sasl = self.protocol.has_sasl
        return ClientAccess(
            servers,
            self.protocol,
            ca=self.files.ca if self.protocol.has_tls else None,
            identity=None if has_sasl else self.files.identity(user),
            mechanism=(mechanism or MECHANISM) if has_sasl else "",
            user=user,
            password=self.passwords[user] if has_sasl else "",
        )

    def client_security(self) -> ClientSecurity:
        """Return the settings of the administrator for Barnabas' own client."""
        return parse_client_security(kafka_settings(self.access("")))


def parse_protocol(text: str) -> SecurityProtocol:
    name = str(text).upper()
    if name not in SECURED:
        raise ConfigError("security", f"{text!r} is not one of {', '.join(SECURED)}")
    return SecurityProtocol[name]


def check_users(users: Mapping[str, str] | Collection[str]) -> dict[str, str]:
    """Return the given passwords by user; empty if one is to be generated. Raises ConfigError or TypeError."""
    if isinstance(users, str):
        raise TypeError(f'users must be a mapping or a list, as in users=["{users}"]')
    given = dict(users) if isinstance(users, Mapping) else dict.fromkeys(users, "")
    for user, password in given.items():
        if not user:
            raise ConfigError("users", "a user name is empty")
        if user == BROKER_USER:
            raise ConfigError("users", f"{user} is the user of the brokers; choose another name")
        if isinstance(users, Mapping) and not password:
            raise ConfigError("users", f"the password of {user} is empty")
    return given


def is_name(host: str) -> bool:
    """Return whether clients can use this host in an address."""
    return host.strip("[]") not in WILDCARDS
