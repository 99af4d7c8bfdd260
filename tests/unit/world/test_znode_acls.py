"""ACLs of znodes."""

from __future__ import annotations

import pytest
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from barnabas.metadata import znodes
from barnabas.world.registry.znode_acls import OPEN_ROOT, SECURE_ROOTS, acl_of


@pytest.mark.parametrize(
    "path",
    [
        *("/config/users", "/config/users/alice", "/config/brokers/1"),
        *("/delegation_token/tokens/x", "/barnabas/login_secret"),
    ],
)
def test_secrets_are_readable_by_brokers_only(path: str) -> None:
    assert acl_of(path, is_secure=True) == CREATOR_ALL_ACL


@pytest.mark.parametrize("path", ["/", "/brokers/ids/1", "/config/topics/t", "/delegation_token"])
def test_other_znodes_are_readable_by_everyone(path: str) -> None:
    assert acl_of(path, is_secure=True) == [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


@pytest.mark.parametrize("path", ["/", "/config/users/alice"])
def test_znodes_are_open_without_security(path: str) -> None:
    assert acl_of(path, is_secure=False) == OPEN_ACL_UNSAFE


def test_consumers_path_stays_open() -> None:
    assert acl_of("/consumers", is_secure=True) == OPEN_ACL_UNSAFE


def test_every_tree_of_a_cluster_is_covered() -> None:
    constants = {name: value for name, value in vars(znodes).items() if name.isupper()}
    paths = [path for path in constants.values() if isinstance(path, str) and path[:1] == "/"]
    assert len(paths) > 10
    for path in paths:
        assert path.startswith((*SECURE_ROOTS, OPEN_ROOT)), path
