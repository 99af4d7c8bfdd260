"""Settings of the authorizer, and the checks of handlers."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.authorizers import AuthorizationRequest
from barnabas.broker.security.access import ALL_OPERATIONS, Access
from barnabas.broker.security.audit import Audit
from barnabas.broker.security.authorization import Authorization, read_rules
from barnabas.broker.security.custom_authorizer import CustomAuthorizer, create_authorizer
from barnabas.config import BrokerConfig
from barnabas.config.load import load_broker_config
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.security.acl.authorizer import AclAuthorizer
from barnabas.security.acl.decision import Action, AuthorizerRules
from barnabas.security.acl.model import (
    CLUSTER,
    AccessControlEntry,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.principal import Principal
from barnabas.wire.messages.describe_groups import GROUP_OPERATIONS
from barnabas.wire.messages.metadata import CLUSTER_OPERATIONS, TOPIC_OPERATIONS


def connection(name: str = "alice", host: str = "10.0.0.1") -> Any:
    return SimpleNamespace(principal=Principal(name), stream=SimpleNamespace(peer=(host, 5)), api=0)


def access_with(*acls: tuple[ResourcePattern, AccessControlEntry]) -> Access:
    authorizer = AclAuthorizer(AuthorizerRules(frozenset({"User:admin"})))
    for pattern, entry in acls:
        before = authorizer.index.entries.get(pattern, ())
        authorizer.replace(pattern, [*before, entry])
    return Access(Audit(lambda: 1.0), authorizer)


def allow(operation: Operation, host: str = "*") -> AccessControlEntry:
    return AccessControlEntry("User:alice", host, operation, Permission.ALLOW)


def test_without_authorizer_everything_is_allowed() -> None:
    access = Access(Audit(lambda: 1.0))
    assert not access.is_enabled
    assert access.allows_topic(connection(), Operation.WRITE, "t")
    assert access.allows_any(connection(), Operation.WRITE, ResourceType.TOPIC)
    access.require_cluster(connection(), Operation.ALTER)
    found = {each: access.authorized_operations(connection(), each, "x") for each in ALL_OPERATIONS}
    assert found[ResourceType.TOPIC] == TOPIC_OPERATIONS
    assert found[ResourceType.GROUP] == GROUP_OPERATIONS
    assert access.cluster_operations(connection()) == CLUSTER_OPERATIONS


def test_cluster_operation_needs_acl() -> None:
    access = access_with((CLUSTER, allow(Operation.ALTER)))
    access.require_cluster(connection(), Operation.ALTER)
    access.require_cluster(connection("admin"), Operation.CLUSTER_ACTION)
    with pytest.raises(ApiError) as raised:
        access.require_cluster(connection(), Operation.CLUSTER_ACTION)
    assert raised.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "User:alice may not ClusterAction" in raised.value.message
    assert not access.is_broker(connection())


def test_ipv6_host_is_compared_in_javas_form() -> None:
    topic = ResourcePattern(ResourceType.TOPIC, "t")
    access = access_with((topic, allow(Operation.READ, "0:0:0:0:0:0:0:1")))
    assert access.allows_topic(connection(host="::1"), Operation.READ, "t")
    assert not access.allows_topic(connection(host="::2"), Operation.READ, "t")
    access = access_with((topic, allow(Operation.READ, "10.0.0.7")))
    assert access.allows_topic(connection(host="::ffff:10.0.0.7"), Operation.READ, "t")


def test_only_audited_denials_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "barnabas.audit")
    access = access_with()
    access.allows_topic(connection(), Operation.READ, "t", is_audited=False)
    access.authorized_operations(connection(), ResourceType.TOPIC, "t")
    assert not caplog.messages
    access.allows_any(connection(), Operation.WRITE, ResourceType.TOPIC)
    assert len(caplog.messages) == 1


# ---- settings -----------------------------------------------------------------------------------


def config_with(**properties: str) -> BrokerConfig:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return load_broker_config({"broker.id": "1", **named})[0]


def test_rules_are_read_from_undeclared_settings() -> None:
    assert read_rules(BrokerConfig()) == AuthorizerRules()
    config = config_with(super_users="User:a;User:b", allow_everyone_if_no_acl_found="true")
    assert read_rules(config) == AuthorizerRules(frozenset({"User:a", "User:b"}), True)
    with pytest.raises(ConfigError, match=r"super\.users"):
        read_rules(config_with(super_users="admin"))
    with pytest.raises(ConfigError, match=r"allow\.everyone"):
        read_rules(config_with(allow_everyone_if_no_acl_found="maybe"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("org.apache.kafka.metadata.authorizer.StandardAuthorizer", "KRaft"),
        ("com.example.MyAuthorizer", "module:Class"),
        ("no.such.module:Class", "cannot create"),
        ("json:loads", "not a class"),
        ("json:JSONDecoder", "no method authorize"),
    ],
)
async def test_unusable_authorizer_is_a_config_error(name: str, message: str) -> None:
    config = config_with(authorizer_class_name=name)
    authorization = Authorization(config, cast(Any, None), cast(Any, None))
    with pytest.raises(ConfigError, match=message):
        await authorization.start()


async def test_empty_authorizer_allows_everything() -> None:
    authorization = Authorization(BrokerConfig(), cast(Any, None), cast(Any, None))
    await authorization.start()
    assert not authorization.access.is_enabled


# ---- the operator's own authorizer --------------------------------------------------------------


class Recorder:
    def __init__(self) -> None:
        self.requests: list[AuthorizationRequest] = []
        self.answer: object = True
        self.is_closed = False

    def authorize(self, request: AuthorizationRequest) -> object:
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def close(self) -> None:
        self.is_closed = True


WRITE_T = Action("User:a", "h", Operation.IDEMPOTENT_WRITE, ResourceType.TRANSACTIONAL_ID, "t")


def test_custom_authorizer_gets_kafkas_names() -> None:
    recorder = Recorder()
    custom = CustomAuthorizer(recorder, frozenset({"User:root"}), lambda: 0.0)
    assert custom.allows(WRITE_T)
    assert recorder.requests == [
        AuthorizationRequest("User:a", "h", "IdempotentWrite", "TransactionalId", "t")
    ]
    assert custom.allows(WRITE_T._replace(principal="User:root"))
    assert len(recorder.requests) == 1
    custom.close()
    assert recorder.is_closed


@pytest.mark.parametrize("answer", [False, None, 1, "yes", RuntimeError("defect")])
def test_anything_but_true_denies(answer: object) -> None:
    recorder = Recorder()
    recorder.answer = answer
    assert not CustomAuthorizer(recorder, frozenset(), lambda: 0.0).allows(WRITE_T)


def test_any_resource_is_denied_without_method() -> None:
    custom = CustomAuthorizer(Recorder(), frozenset({"User:root"}), lambda: 0.0)
    key = "h", Operation.WRITE, ResourceType.TOPIC
    assert not custom.allows_any("User:a", *key)
    assert custom.allows_any("User:root", *key)


def test_authorizer_of_the_documentation_decides() -> None:
    page = (Path(__file__).parents[4] / "docs" / "security.md").read_text()
    found = re.search(
        r"^```python\n(# my_package/access.py\n.*?)^```$", page, re.MULTILINE | re.DOTALL
    )
    assert found is not None
    names: dict[str, Any] = {}
    exec(compile(found[1], "docs/security.md", "exec"), names)
    authorizer = names["TeamAuthorizer"]()
    authorizer.configure({"barnabas.policy.public": "open-"})
    custom = CustomAuthorizer(authorizer, frozenset(), lambda: 0.0)

    def may(operation: Operation, topic: str) -> bool:
        return custom.allows(Action("User:shop", "h", operation, ResourceType.TOPIC, topic))

    assert may(Operation.WRITE, "shop-orders")
    assert may(Operation.READ, "open-prices")
    assert not may(Operation.WRITE, "open-prices")
    assert not may(Operation.READ, "bank-orders")
    assert custom.allows_any("User:shop", "h", Operation.WRITE, ResourceType.TOPIC)
    assert not custom.allows_any("User:shop", "h", Operation.READ, ResourceType.TOPIC)
    custom.close()


def test_slow_authorizer_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    times = iter([0.0, 0.5])
    CustomAuthorizer(Recorder(), frozenset(), lambda: next(times)).allows(WRITE_T)
    assert "authorizer is slow taken_ms=500" in caplog.text


def test_module_and_class_are_loaded() -> None:
    name = f"{__name__}:Recorder"
    assert isinstance(create_authorizer(name, {}), Recorder)
