"""TLS, logins and ACLs of the connections to a real ZooKeeper."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from uuid import uuid4

import click.testing
import pytest

from barnabas.cli.main import cli
from barnabas.client.cluster import Cluster
from barnabas.cluster.zookeeper_client import CurrentContext, build_security, read_settings
from barnabas.cluster.zookeeper_servers import ServerTls, ZooKeeperServers
from barnabas.errors import AuthFailed, ConfigError, NoAuth, RegistryUnreachable
from barnabas.security.tls.settings import TlsSettings
from barnabas.security.zookeeper import DIGEST_MODULE, JAAS_CONFIG, parse_zookeeper_properties
from barnabas.world.ports import SessionState
from barnabas.world.registry.znode_acls import is_sensitive
from barnabas.world.registry.zookeeper import ZooKeeperRegistry, ZooKeeperSession
from support.broker import QUIET
from support.certificates import PASSWORD, CertificateFiles
from support.cluster import MemberProcess
from tests.zookeeper import require_java

USER, USER_PASSWORD = "kafka", "s3crèt"
OTHER_USER, OTHER_PASSWORD = "mallory", "other-s3cret"
CERTIFICATE_NAME = "CN=alice,OU=orders,O=Shop"
ALL, READ = 31, 1
TIMEOUT_MS = 20_000
WAIT_S = 120


def jaas_line(user: str = USER, password: str = USER_PASSWORD) -> str:
    return f'{DIGEST_MODULE} required username="{user}" password="{password}";'


LOGIN = {JAAS_CONFIG: jaas_line()}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def zookeeper(
    files: CertificateFiles, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperServers]:
    """A ZooKeeper that accepts only TLS. Client certificates and logins are optional."""
    require_java()
    servers = ZooKeeperServers(
        tmp_path_factory.mktemp("zookeeper-tls"),
        tls=ServerTls(files.server, files.ca, "want"),
        users={USER: USER_PASSWORD, OTHER_USER: OTHER_PASSWORD},
    )
    servers.start()
    yield servers
    servers.stop()


@pytest.fixture(scope="module")
def tls(files: CertificateFiles) -> dict[str, str]:
    """Settings of TLS without a client certificate."""
    return {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.truststore.location": str(files.ca),
        "zookeeper.ssl.truststore.type": "PEM",
    }


@pytest.fixture
def secured(zookeeper: ZooKeeperServers) -> str:
    """A connect string with an empty chroot."""
    return f"{zookeeper.connect_string}/test-{uuid4().hex}"


Connect = Callable[..., ZooKeeperRegistry]


@pytest.fixture
async def registries() -> AsyncIterator[list[ZooKeeperRegistry]]:
    opened: list[ZooKeeperRegistry] = []
    yield opened
    for registry in opened:
        await registry.close()


@pytest.fixture
def registry(registries: list[ZooKeeperRegistry]) -> Connect:
    def build(
        connect: str, properties: dict[str, str], *, timeout_ms: int = TIMEOUT_MS
    ) -> ZooKeeperRegistry:
        settings = read_settings(parse_zookeeper_properties(properties))
        registries.append(
            ZooKeeperRegistry(
                connect, connection_timeout_ms=timeout_ms, security=build_security(settings)
            )
        )
        return registries[-1]

    return build


async def identities(session: ZooKeeperSession, path: str) -> dict[str, int]:
    """Return the permissions in the ACL of a znode by identity."""
    return {f"{each.id.scheme}:{each.id.id}": each.perms for each in await session.acl(path)}


# ---- connections


@pytest.mark.parametrize(
    "versions",
    [{}, {"zookeeper.ssl.enabled.protocols": "TLSv1.3"}, {"zookeeper.ssl.protocol": "TLSv1.2"}],
)
async def test_session_over_tls(
    registry: Connect, secured: str, tls: dict[str, str], versions: dict[str, str]
) -> None:
    session = await registry(secured, {**tls, **versions}).connect(TIMEOUT_MS)
    large = bytes(900_000)
    await session.create("/large", large)
    found = await asyncio.gather(*(session.get("/large") for _ in range(10)))
    assert all(data == large for data, _ in found)


@pytest.mark.parametrize("store", ["client", "client_pkcs12", "encrypted"])
async def test_client_certificate_is_the_identity(
    registry: Connect, secured: str, tls: dict[str, str], files: CertificateFiles, store: str
) -> None:
    if store == "encrypted":
        location, name = files.server_encrypted, "CN=broker,O=Barnabas"
    else:
        location, name = getattr(files, store), CERTIFICATE_NAME
    settings = {
        **tls,
        "zookeeper.ssl.keystore.location": str(location),
        "zookeeper.ssl.keystore.password": PASSWORD,
        "zookeeper.set.acl": "true",
    }
    session = await registry(secured, settings).connect(TIMEOUT_MS)
    await session.create("/config")
    assert await identities(session, "/config") == {f"x509:{name}": ALL, "world:anyone": READ}


async def test_login_is_the_identity(registry: Connect, secured: str, tls: dict[str, str]) -> None:
    session = await registry(secured, {**tls, **LOGIN, "zookeeper.set.acl": "true"}).connect(
        TIMEOUT_MS
    )
    for path in ("/config", "/config/users", "/config/users/alice", "/consumers"):
        await session.create(path)
    readable = {f"sasl:{USER}": ALL, "world:anyone": READ}
    assert await identities(session, "/") == readable
    assert await identities(session, "/config") == readable
    assert await identities(session, "/config/users") == {f"sasl:{USER}": ALL}
    assert await identities(session, "/config/users/alice") == {f"sasl:{USER}": ALL}
    assert await identities(session, "/consumers") == {"world:anyone": ALL}


async def test_login_is_repeated_after_a_lost_connection(
    registry: Connect, secured: str, tls: dict[str, str]
) -> None:
    session = await registry(secured, {**tls, **LOGIN, "zookeeper.set.acl": "true"}).connect(
        TIMEOUT_MS
    )
    await session.create("/controller")
    is_connected_again = asyncio.Event()
    session.on_state(
        lambda state: is_connected_again.set() if state is SessionState.CONNECTED else None
    )
    connection = session.handler.connection
    assert connection is not None
    socket.socket.shutdown(connection.socket, socket.SHUT_RDWR)
    async with asyncio.timeout(WAIT_S):
        await is_connected_again.wait()
    await session.set("/controller", b"x")  # the ACL permits it to this identity only
    assert session.state is SessionState.CONNECTED


@pytest.mark.parametrize(("user", "password"), [(USER, "wrong-s3cret"), ("nobody", USER_PASSWORD)])
async def test_wrong_login_is_refused_at_once(
    registry: Connect, secured: str, tls: dict[str, str], user: str, password: str
) -> None:
    settings = {**tls, JAAS_CONFIG: jaas_line(user, password)}
    with pytest.raises(AuthFailed, match=f"refused the login of user '{user}'") as raised:
        await registry(secured, settings).connect(TIMEOUT_MS)
    assert password not in str(raised.value)


async def test_login_to_zookeeper_without_logins_is_refused(registry: Connect, chroot: str) -> None:
    with pytest.raises(AuthFailed, match="does not support SASL logins"):
        await registry(chroot, LOGIN).connect(TIMEOUT_MS)


async def test_session_ends_when_its_user_is_removed(registry: Connect, tmp_path: Path) -> None:
    require_java()
    servers = ZooKeeperServers(tmp_path, users={USER: USER_PASSWORD, OTHER_USER: OTHER_PASSWORD})
    servers.start()
    try:
        tree = registry(servers.connect_string, LOGIN)
        session = await tree.connect(TIMEOUT_MS)
        has_expired = asyncio.Event()
        session.on_state(lambda state: has_expired.set() if state is SessionState.EXPIRED else None)
        servers.users = {OTHER_USER: OTHER_PASSWORD}
        await asyncio.to_thread(servers.restart, 1)
        async with asyncio.timeout(WAIT_S):
            await has_expired.wait()
        with pytest.raises(AuthFailed):
            await tree.connect(TIMEOUT_MS)
    finally:
        servers.stop()


async def expect_refusal(
    registry: Connect, connect: str, settings: dict[str, str], why: str
) -> None:
    """Connect until the timeout, and check the reason. A busy server may need more than the first timeout."""
    reason = ""
    for timeout_ms in (1000, 10_000, 60_000):
        with pytest.raises(RegistryUnreachable) as raised:
            await registry(connect, settings, timeout_ms=timeout_ms).connect(TIMEOUT_MS)
        reason = str(raised.value)
        if re.search(why, reason):
            return
    raise AssertionError(f"{why!r} is not in {reason!r}")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"zookeeper.ssl.truststore.location": "other_ca"}, "certificate of the server"),
        ({"zookeeper.ssl.keystore.location": "untrusted_client"}, "TLS failed|closed"),
        ({"zookeeper.ssl.keystore.location": "expired_client"}, "TLS failed|closed"),
        ({"zookeeper.ssl.client.enable": "false"}, "requires TLS"),
    ],
)
async def test_refused_connection_has_a_reason(
    registry: Connect,
    secured: str,
    tls: dict[str, str],
    files: CertificateFiles,
    change: dict[str, str],
    why: str,
) -> None:
    changed = {name: str(getattr(files, file, file)) for name, file in change.items()}
    await expect_refusal(registry, secured, {**tls, **changed}, why)


async def test_wrong_host_name_is_refused(
    registry: Connect, tls: dict[str, str], files: CertificateFiles, tmp_path: Path
) -> None:
    require_java()
    servers = ZooKeeperServers(tmp_path, tls=ServerTls(files.wrong_host_server, files.ca, "none"))
    servers.start()
    try:
        connect = servers.connect_string
        await expect_refusal(registry, connect, tls, "IP address mismatch")
        unchecked = {**tls, "zookeeper.ssl.endpoint.identification.algorithm": ""}
        await registry(connect, unchecked).connect(TIMEOUT_MS)
    finally:
        servers.stop()


async def test_tls_to_plain_zookeeper_is_refused(
    registry: Connect, chroot: str, tls: dict[str, str]
) -> None:
    await expect_refusal(registry, chroot, tls, "does not accept TLS on this port")


async def test_acls_need_an_identity(registry: Connect, chroot: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.set\.acl: needs a login"):
        registry(chroot, {"zookeeper.set.acl": "true"})


async def test_chroot_with_the_name_of_a_protected_znode_has_the_acl_of_the_root(
    registry: Connect, secured: str, tls: dict[str, str]
) -> None:
    settings = {**tls, **LOGIN, "zookeeper.set.acl": "true"}
    server = secured.partition("/")[0]
    found = []
    for chroot in (secured, f"{server}/config/users"):
        session = await registry(chroot, settings).connect(TIMEOUT_MS)
        found.append(await identities(session, "/"))
    assert "world:anyone" in found[0]
    assert found[0] == found[1]


async def test_new_certificates_are_read(tmp_path: Path, files: CertificateFiles) -> None:
    store = tmp_path / "client.pem"
    store.write_bytes(files.client_identity.pem)
    current = CurrentContext(
        TlsSettings(keystore_location=str(store), truststore_location=str(files.ca))
    )
    first = current()
    assert current() is first
    store.write_bytes(b"not a key store")
    assert current() is first
    store.write_bytes(files.make("bob").pem)
    assert current() is not first


# ---- a cluster


@pytest.fixture(scope="module")
def broker(
    zookeeper: ZooKeeperServers, tls: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MemberProcess]:
    """A broker that sets ACLs. Its ZooKeeper is secured."""
    settings = {**QUIET, **tls, **LOGIN, "zookeeper.set.acl": "true"}
    escaped = {
        name: value.encode("ascii", "backslashreplace").decode() for name, value in settings.items()
    }
    connect = f"{zookeeper.connect_string}/cluster-{uuid4().hex}"
    member = MemberProcess(tmp_path_factory.mktemp("broker"), connect, 1, {})
    member.configure({name: value.replace("\\x", "\\u00") for name, value in escaped.items()})
    member.start()
    yield member
    member.stop()


def run(*arguments: str, environment: dict[str, str] | None = None) -> click.testing.Result:
    return click.testing.CliRunner(env=environment).invoke(cli, arguments)


def config_file(directory: Path, settings: dict[str, str]) -> str:
    path = directory / "zookeeper.properties"
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    path.write_text(text, encoding="iso-8859-1")
    return str(path)


async def walk(session: ZooKeeperSession, path: str = "/") -> AsyncIterator[str]:
    yield path
    for name in await session.children(path):
        async for each in walk(session, f"{path.rstrip('/')}/{name}"):
            yield each


async def test_every_znode_of_a_cluster_has_its_acl(
    broker: MemberProcess, registry: Connect, tls: dict[str, str]
) -> None:
    with Cluster(broker.bootstrap_servers, timeout_s=20.0) as client:
        client.refresh(None)
    connect = broker.settings["zookeeper.connect"]
    created = run("topics", "create", "orders", "-b", broker.bootstrap_servers)
    assert created.exit_code == 0, created.output
    session = await registry(connect, {**tls, **LOGIN}).connect(TIMEOUT_MS)
    paths = [path async for path in walk(session)]
    assert "/brokers/topics/orders" in paths
    assert "/brokers/ids/1" in paths
    for path in paths:
        found = await identities(session, path)
        owner = {f"sasl:{USER}": ALL}
        if path == "/consumers":
            assert found == {"world:anyone": ALL}
        elif is_sensitive(path):
            assert found == owner, path
        else:
            assert found == {**owner, "world:anyone": READ}, path


@pytest.mark.parametrize("login", [{}, {JAAS_CONFIG: jaas_line(OTHER_USER, OTHER_PASSWORD)}])
async def test_others_cannot_write_or_read_secrets(
    broker: MemberProcess, registry: Connect, tls: dict[str, str], login: dict[str, str]
) -> None:
    session = await registry(broker.settings["zookeeper.connect"], {**tls, **login}).connect(
        TIMEOUT_MS
    )
    assert await session.children("/brokers/ids") == ["1"]
    with pytest.raises(NoAuth, match="log in to ZooKeeper"):
        await session.get("/config/users")
    with pytest.raises(NoAuth):
        await session.create("/brokers/topics/forged", b"{}")
    with pytest.raises(NoAuth):
        await session.delete("/brokers/ids/1")
    with pytest.raises(NoAuth):
        await session.set("/controller_epoch", b"99")
    with pytest.raises(NoAuth):
        await session.set_acl("/brokers", is_secure=False)


def test_broker_with_a_wrong_password_exits_with_the_reason(
    broker: MemberProcess, tls: dict[str, str], tmp_path: Path
) -> None:
    settings = {**tls, JAAS_CONFIG: jaas_line(USER, "wrong-s3cret")}
    member = MemberProcess(tmp_path, broker.settings["zookeeper.connect"], 2, settings)
    member.launch()
    assert member.wait() == 1
    assert "refused the login of user 'kafka'" in member.log()
    assert "wrong-s3cret" not in member.log()


# ---- commands


def test_registry_commands_read_the_settings_from_a_file(
    broker: MemberProcess, tls: dict[str, str], tmp_path: Path
) -> None:
    where = ("--zookeeper", broker.settings["zookeeper.connect"])
    open_file = config_file(tmp_path, tls)
    found = run("registry", "get", "/brokers/ids/1", *where, "--zookeeper-config", open_file)
    assert found.exit_code == 0, found.output
    denied = run("registry", "get", "/config/users", *where, "--zookeeper-config", open_file)
    assert denied.exit_code == 1
    assert "NoAuth: /config/users: the ACL of the znode" in denied.stderr
    variable = {"BARNABAS_ZOOKEEPER_CONFIG": config_file(tmp_path, {**tls, **LOGIN})}
    permitted = run("registry", "get", "/config/users", *where, environment=variable)
    assert permitted.exit_code == 0, permitted.output


def test_login_is_read_from_the_jaas_file_of_java(
    broker: MemberProcess, tls: dict[str, str], tmp_path: Path
) -> None:
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(f"Client {{\n  {jaas_line()}\n}};\n")
    environment = {
        "BARNABAS_ZOOKEEPER_CONFIG": config_file(tmp_path, tls),
        "KAFKA_OPTS": f"-Xmx1g -Djava.security.auth.login.config={jaas}",
    }
    connect = broker.settings["zookeeper.connect"]
    found = run("registry", "get", "/config/users", "--zookeeper", connect, environment=environment)
    assert found.exit_code == 0, found.output


async def test_kafka_configs_uses_tls_and_sets_acls(
    broker: MemberProcess, registry: Connect, tls: dict[str, str], tmp_path: Path
) -> None:
    connect = broker.settings["zookeeper.connect"]
    where = (
        "--zookeeper",
        connect,
        "--zk-tls-config-file",
        config_file(tmp_path, {**tls, **LOGIN}),
    )
    change = ("--alter", "--user", "alice", "--add-config", "producer_byte_rate=1000")
    done = await asyncio.to_thread(run, "kafka-configs", *where, *change)
    assert done.exit_code == 0, done.output
    session = await registry(connect, {**tls, **LOGIN}).connect(TIMEOUT_MS)
    assert b"producer_byte_rate" in (await session.get("/config/users/alice"))[0]
    assert await identities(session, "/config/users/alice") == {f"sasl:{USER}": ALL}


async def test_registry_is_secured_and_opened_again(
    registry: Connect, secured: str, tls: dict[str, str], tmp_path: Path
) -> None:
    anyone = await registry(secured, tls).connect(TIMEOUT_MS)
    for path in ("/brokers", "/brokers/ids", "/config", "/config/users", "/other", "/consumers"):
        await anyone.create(path)
    file = config_file(tmp_path, {**tls, **LOGIN})
    options = ("--zookeeper", secured, "--zookeeper-config", file)

    done = await asyncio.to_thread(run, "registry", "secure", *options, "--dry-run")
    assert (done.exit_code, done.output) == (0, "would secure 5 znodes\n")
    assert await identities(anyone, "/brokers") == {"world:anyone": ALL}
    done = await asyncio.to_thread(run, "registry", "secure", *options)
    assert (done.exit_code, done.output) == (0, "secured 5 znodes\n")
    owner, everyone = {f"sasl:{USER}": ALL}, {"world:anyone": ALL}
    for path in ("/", "/brokers", "/brokers/ids"):
        assert await identities(anyone, path) == {**owner, "world:anyone": READ}, path
    with pytest.raises(NoAuth):
        await anyone.get("/config/users")
    for path in ("/other", "/consumers"):
        assert await identities(anyone, path) == everyone
    with pytest.raises(NoAuth):
        await anyone.create("/brokers/ids/1")

    other = {**tls, JAAS_CONFIG: jaas_line(OTHER_USER, OTHER_PASSWORD)}
    refused = ("--zookeeper", secured, "--zookeeper-config", config_file(tmp_path, other))
    done = await asyncio.to_thread(run, "registry", "unsecure", *refused)
    assert done.exit_code == 1
    assert "NoAuth" in done.stderr

    config_file(tmp_path, {**tls, **LOGIN})
    done = await asyncio.to_thread(run, "registry", "unsecure", *options)
    assert (done.exit_code, done.output) == (0, "opened 5 znodes\n")
    assert await identities(anyone, "/config/users") == everyone
    await anyone.create("/brokers/ids/1")


async def test_kafka_command_secures_and_opens(
    registry: Connect, secured: str, tls: dict[str, str], tmp_path: Path
) -> None:
    anyone = await registry(secured, tls).connect(TIMEOUT_MS)
    await anyone.create("/brokers")
    file = config_file(tmp_path, {**tls, **LOGIN})
    for acl, permissions in (("secure", READ), ("unsecure", ALL)):
        options = (
            f"--zookeeper.acl={acl}",
            f"--zookeeper.connect={secured}",
            "--enable.path.check",
        )
        done = await asyncio.to_thread(
            run, "zookeeper-security-migration", *options, "--zk-tls-config-file", file
        )
        assert (done.exit_code, done.output) == (0, "")
        assert (await identities(anyone, "/brokers"))["world:anyone"] == permissions


def test_kafka_command_needs_a_known_acl() -> None:
    done = run("zookeeper-security-migration", "--zookeeper.acl=none")
    assert done.exit_code == 1
    assert "--zookeeper.acl" in done.stderr


async def test_securing_needs_an_identity_and_a_cluster(
    registry: Connect, secured: str, tls: dict[str, str], tmp_path: Path
) -> None:
    await registry(secured, tls).connect(TIMEOUT_MS)
    no_login = ("--zookeeper-config", config_file(tmp_path, tls))
    done = await asyncio.to_thread(run, "registry", "secure", "--zookeeper", secured, *no_login)
    assert done.exit_code == 1
    assert "needs a login or a client certificate" in done.stderr
    login = ("--zookeeper-config", config_file(tmp_path, {**tls, **LOGIN}))
    done = await asyncio.to_thread(run, "registry", "secure", "--zookeeper", secured, *login)
    assert done.exit_code == 1
    assert "there is no cluster at this address" in done.stderr
