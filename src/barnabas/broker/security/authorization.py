"""Authorization of one broker: the authorizer that the settings name, its ACLs and the access checks.

authorizer.class.name=                                            everything is allowed
authorizer.class.name=kafka.security.authorizer.AclAuthorizer     ACLs in the registry
authorizer.class.name=my_package.access:TeamAuthorizer            barnabas/authorizers.py
"""

from __future__ import annotations

import asyncio

from barnabas.broker.security.access import Access
from barnabas.broker.security.acl_store import AclStore
from barnabas.broker.security.audit import Audit
from barnabas.broker.security.custom_authorizer import CustomAuthorizer, create_authorizer
from barnabas.config import BrokerConfig
from barnabas.errors import ConfigError
from barnabas.metadata.registry_client import RegistryClient
from barnabas.security.acl.authorizer import AclAuthorizer
from barnabas.security.acl.decision import AuthorizerRules, parse_super_users
from barnabas.tasks import Tasks
from barnabas.world.ports import World

SETTING = "authorizer.class.name"
ACL_AUTHORIZERS = (
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)
"""Kafka's names of its authorizer with ACLs in ZooKeeper, the second before version 3.0."""
KRAFT_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class Authorization:
    """Created with an authorizer that `start` loads. Until then, `access` allows everything."""

    def __init__(self, config: BrokerConfig, world: World, registry: RegistryClient) -> None:
        self.config = config
        self.world = world
        self.registry = registry
        self.audit = Audit(
            lambda: world.clock.now_ms() / 1000, is_enabled=config.barnabas_audit_enable
        )
        self.access = Access(self.audit)
        self.store: AclStore | None = None
        """None unless the authorizer uses ACLs."""
        self.tasks = Tasks()

    async def start(self) -> None:
        """Create the authorizer and read the ACLs. Raises ConfigError or RegistryError."""
        name = str(self.config.security_value(SETTING) or "").strip()
        if not name:
            return
        rules = read_rules(self.config)
        if name == KRAFT_AUTHORIZER:
            why = f"'{name}' keeps ACLs in KRaft; use {ACL_AUTHORIZERS[0]}, which keeps them in the registry"
            raise ConfigError(SETTING, why)
        if name not in ACL_AUTHORIZERS:
            authorizer = create_authorizer(name, self.config.properties)
            now_s = asyncio.get_running_loop().time
            self.access.decider = CustomAuthorizer(authorizer, rules.super_users, now_s)
            return
        acls = AclAuthorizer(rules)
        store = AclStore(self.registry, acls, self.world.clock, self.world.random)
        await store.load()
        self.access.decider, self.store = acls, store
        for changes in store.changes:
            self.tasks.start("acl-changes", changes.run())

    def session_opened(self) -> None:
        """Read the ACLs again: a new registry session has no watches, and changes may have been missed."""
        if self.store is not None:
            for changes in self.store.changes:
                changes.session_opened()

    async def stop(self) -> None:
        await self.tasks.stop()
        if isinstance(self.access.decider, CustomAuthorizer):
            self.access.decider.close()


def read_rules(config: BrokerConfig) -> AuthorizerRules:
    """Read the settings of the authorizer, which Kafka does not declare. Raises ConfigError."""
    properties = config.properties
    try:
        super_users = parse_super_users(properties.get("super.users", ""))
    except ValueError as error:
        raise ConfigError("super.users", f"{error}; separate principals by semicolons") from error
    allow = properties.get("allow.everyone.if.no.acl.found", "").strip().lower()
    if allow not in ("", "true", "false"):
        raise ConfigError("allow.everyone.if.no.acl.found", f"'{allow}' is not true or false")
    return AuthorizerRules(super_users, allow == "true")
