"""ACLs of znodes in ZooKeeper, as Kafka sets them with zookeeper.set.acl=true.

    /config/users, /config/brokers,         only the identity that created the znode: they contain secrets
    /delegation_token/tokens, /barnabas
    /consumers                              everyone may do everything
    all others                              everyone may read; the identity that created the znode may do everything

An identity is a SASL user or the name in a TLS client certificate.
"""

from __future__ import annotations

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

SENSITIVE_ROOTS = ("/config/users", "/config/brokers", "/delegation_token/tokens", "/barnabas")
OPEN_ROOT = "/consumers"
SECURE_ROOTS = (
    *("/admin", "/brokers", "/cluster", "/config", "/controller", "/controller_epoch"),
    *("/isr_change_notification", "/latest_producer_id_block", "/log_dir_event_notification"),
    *("/delegation_token", "/kafka-acl", "/kafka-acl-changes", "/kafka-acl-extended"),
    *("/kafka-acl-extended-changes", "/feature", "/migration", "/barnabas"),
)
"""The trees of a cluster, except OPEN_ROOT."""


def is_sensitive(path: str) -> bool:
    """
    >>> is_sensitive("/config/users/alice"), is_sensitive("/config/topics/orders")
    (True, False)
    """
    return path.startswith(SENSITIVE_ROOTS)


def acl_of(path: str, *, is_secure: bool) -> list[ACL]:
    """Return the ACL of a znode. `path` is without the chroot."""
    if not is_secure or path == OPEN_ROOT:
        return list(OPEN_ACL_UNSAFE)
    if is_sensitive(path):
        return list(CREATOR_ALL_ACL)
    return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]
