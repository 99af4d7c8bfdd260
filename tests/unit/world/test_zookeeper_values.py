import pytest
from kazoo.exceptions import (
    APIError,
    BadVersionError,
    ConnectionClosedError,
    NoAuthError,
    NodeExistsError,
    RolledBackError,
    RuntimeInconsistency,
)

from barnabas.errors import (
    BadPath,
    BadVersion,
    ConfigError,
    MultiFailed,
    NoAuth,
    NodeExists,
    RegistrySessionExpired,
)
from barnabas.world.ports import CheckVersion, Create, Delete, Op
from barnabas.world.registry.zookeeper_values import Chroot, parse_connect_string, to_registry_error


@pytest.mark.parametrize(
    ("text", "hosts", "count", "root"),
    [
        ("h:2181", "h:2181", 1, ""),
        ("h", "h", 1, ""),
        ("h1:1,h2:2/kafka", "h1:1,h2:2", 2, "/kafka"),
        ("h1:1,[::1]:2,h3:3/a/b/", "h1:1,[::1]:2,h3:3", 3, "/a/b"),
        (" h:2181/ ", "h:2181", 1, ""),
    ],
)
def test_connect_string_is_parsed_into_hosts_and_chroot(
    text: str, hosts: str, count: int, root: str
) -> None:
    found = parse_connect_string(text)
    assert (found[0], found[1], found[2].root) == (hosts, count, root)


@pytest.mark.parametrize("text", ["", "host:x", "host:1/a//b", "host:1/../a", ":2181", "a,,b"])
def test_invalid_connect_string_is_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        parse_connect_string(text)


@pytest.mark.parametrize("root", ["", "/kafka", "/a/b"])
@pytest.mark.parametrize("path", ["/", "/brokers", "/brokers/ids/1"])
def test_paths_are_mapped_under_the_chroot_and_back(root: str, path: str) -> None:
    chroot = Chroot(root)
    full = chroot.full(path)
    assert full.startswith(root or "/")
    assert not full.endswith("/") or full == "/"
    assert chroot.strip(full) == path


def test_sequential_node_may_have_an_empty_name() -> None:
    assert Chroot("/kafka").request(Create(path="/a/", sequential=True)).path == "/kafka/a/"
    assert Chroot("/kafka").request(Create(path="/", sequential=True)).path == "/kafka/"
    with pytest.raises(BadPath):
        Chroot("/kafka").request(Create(path="/a/"))


def test_failed_operation_is_found_among_rolled_back_ones() -> None:
    ops: list[Op] = [Create(path="/a"), CheckVersion(path="/b", version=1), Delete(path="/c")]
    with pytest.raises(MultiFailed) as failed:
        Chroot("").results(ops, [RolledBackError(), BadVersionError(), RuntimeInconsistency()])
    assert failed.value.index == 1
    assert isinstance(failed.value.error, BadVersion)
    assert failed.value.error.path == "/b"
    assert Chroot("/r").results(ops, ["/r/a", True, True]) == ["/a", None, None]


def test_kazoo_errors_are_translated() -> None:
    assert isinstance(to_registry_error(NodeExistsError(), "/a"), NodeExists)
    assert isinstance(to_registry_error(ConnectionClosedError(), "/a"), RegistrySessionExpired)
    assert isinstance(to_registry_error(NoAuthError(), "/a"), NoAuth)
    assert "APIError" in str(to_registry_error(APIError(), "/a"))
