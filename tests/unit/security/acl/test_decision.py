from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.security.acl.authorizer import CACHED_DECISIONS_MAX, AclAuthorizer
from barnabas.security.acl.decision import (
    AclIndex,
    Action,
    AuthorizerRules,
    Reason,
    allows_any,
    decide,
    parse_super_users,
)
from barnabas.security.acl.model import (
    AccessControlEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
NO_RULES = AuthorizerRules()


def acl(
    permission: Permission = ALLOW,
    operation: Operation = Operation.READ,
    name: str = "orders",
    pattern: PatternType = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    resource_type: ResourceType = TOPIC,
) -> Acl:
    return Acl(
        ResourcePattern(resource_type, name, pattern),
        AccessControlEntry(principal, host, operation, permission),
    )


def action(operation: Operation = Operation.READ, name: str = "orders", **changes: Any) -> Action:
    return Action("User:alice", "10.0.0.1", operation, TOPIC, name)._replace(**changes)


def is_allowed(acls: list[Acl], wanted: Action, rules: AuthorizerRules = NO_RULES) -> bool:
    return decide(AclIndex(acls), rules, wanted).is_allowed


@pytest.mark.parametrize(
    "rule",
    [
        acl(),
        acl(name="*"),
        acl(name="ord", pattern=PREFIXED),
        acl(name="orders", pattern=PREFIXED),
        acl(operation=Operation.ALL),
        acl(principal="User:*"),
        acl(host="10.0.0.1"),
    ],
    ids=str,
)
def test_matching_allow_acl_allows(rule: Acl) -> None:
    decision = decide(AclIndex([rule]), NO_RULES, action())
    assert decision == (True, Reason.ALLOW_ACL, rule)


@pytest.mark.parametrize(
    "rule",
    [
        acl(name="order"),
        acl(name="orders2", pattern=PREFIXED),
        acl(name="*", pattern=PREFIXED),
        acl(operation=Operation.WRITE),
        acl(operation=Operation.DESCRIBE),
        acl(principal="User:bob"),
        acl(principal="Group:alice"),
        acl(principal="*"),
        acl(host="10.0.0.2"),
        acl(resource_type=GROUP),
    ],
    ids=str,
)
def test_other_allow_acl_does_not_allow(rule: Acl) -> None:
    assert decide(AclIndex([rule]), NO_RULES, action()) == (False, Reason.NO_ALLOW_ACL, None)


@pytest.mark.parametrize(
    "rule",
    [
        acl(DENY),
        acl(DENY, name="*"),
        acl(DENY, name="o", pattern=PREFIXED),
        acl(DENY, Operation.ALL, principal="User:*"),
    ],
    ids=str,
)
def test_deny_acl_overrides_allow_acl(rule: Acl) -> None:
    decision = decide(AclIndex([acl(), rule]), NO_RULES, action())
    assert decision == (False, Reason.DENY_ACL, rule)


@pytest.mark.parametrize(
    ("stored", "requested"),
    [
        (Operation.READ, Operation.DESCRIBE),
        (Operation.WRITE, Operation.DESCRIBE),
        (Operation.DELETE, Operation.DESCRIBE),
        (Operation.ALTER, Operation.DESCRIBE),
        (Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS),
    ],
)
def test_allow_acl_implies_operation_but_deny_acl_does_not(
    stored: Operation, requested: Operation
) -> None:
    assert is_allowed([acl(operation=stored)], action(requested))
    assert is_allowed([acl(operation=requested), acl(DENY, stored)], action(requested))


def test_create_does_not_imply_describe() -> None:
    assert not is_allowed([acl(operation=Operation.CREATE)], action(Operation.DESCRIBE))


def test_super_user_is_allowed_despite_deny_acl() -> None:
    rules = AuthorizerRules(super_users=frozenset({"User:alice"}))
    assert decide(AclIndex([acl(DENY)]), rules, action()) == (True, Reason.SUPER_USER, None)


def test_allow_everyone_applies_only_to_resource_without_acl() -> None:
    rules = AuthorizerRules(allow_if_no_acl=True)
    assert is_allowed([], action(), rules)
    assert is_allowed([acl(name="payments")], action(), rules)
    assert not is_allowed([acl(principal="User:bob")], action(), rules)
    assert not is_allowed([acl(name="*", principal="User:bob")], action(), rules)
    assert not is_allowed([acl(name="ord", pattern=PREFIXED, host="other")], action(), rules)


# ---- comparison with a plain model --------------------------------------------------------------

names = st.sampled_from(["*", "a", "ab", "abc", "b", ""])
acls = st.builds(
    acl,
    permission=st.sampled_from([ALLOW, DENY]),
    operation=st.sampled_from([Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL]),
    name=names,
    pattern=st.sampled_from([LITERAL, PREFIXED]),
    principal=st.sampled_from(["User:alice", "User:bob", "User:*"]),
    host=st.sampled_from(["*", "h1", "h2"]),
    resource_type=st.sampled_from([TOPIC, GROUP]),
)
actions = st.builds(
    Action,
    principal=st.sampled_from(["User:alice", "User:bob"]),
    host=st.sampled_from(["h1", "h2"]),
    operation=st.sampled_from([Operation.READ, Operation.WRITE, Operation.DESCRIBE]),
    type=st.sampled_from([TOPIC, GROUP]),
    name=names,
)


def model_allows(stored: set[Acl], wanted: Action, *, allow_if_no_acl: bool) -> bool:
    def covers(pattern: ResourcePattern) -> bool:
        if pattern.type is not wanted.type:
            return False
        if pattern.pattern is PREFIXED:
            # Kafka never looks up the empty prefix, which CreateAcls refuses.
            return pattern.name != "" and wanted.name.startswith(pattern.name)
        return pattern.name in ("*", wanted.name)

    def applies(entry: AccessControlEntry, operations: set[Operation]) -> bool:
        return (
            entry.principal in ("User:*", wanted.principal)
            and entry.host in ("*", wanted.host)
            and entry.operation in operations | {Operation.ALL}
        )

    found = [each.entry for each in stored if covers(each.pattern)]
    implying = {wanted.operation}
    if wanted.operation is Operation.DESCRIBE:
        implying |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if not found:
        return allow_if_no_acl
    if any(each.permission is DENY and applies(each, {wanted.operation}) for each in found):
        return False
    return any(each.permission is ALLOW and applies(each, implying) for each in found)


@given(st.sets(acls, max_size=12), actions, st.booleans())
def test_decision_equals_plain_model(stored: set[Acl], wanted: Action, allow: bool) -> None:
    rules = AuthorizerRules(allow_if_no_acl=allow)
    assert decide(AclIndex(stored), rules, wanted).is_allowed == model_allows(
        stored, wanted, allow_if_no_acl=allow
    )


@given(st.lists(st.sets(acls, max_size=8), min_size=1, max_size=4), actions)
def test_replaced_acls_decide_like_new_ones(versions: list[set[Acl]], wanted: Action) -> None:
    authorizer = AclAuthorizer(NO_RULES)
    new = AclIndex()
    for stored in versions:
        old, new = AclIndex(authorizer.index), AclIndex(stored)
        for pattern in {**old.entries, **new.entries}:
            authorizer.replace(pattern, new.entries.get(pattern, ()))
        assert set(authorizer.index) == stored
        assert authorizer.allows(wanted) == is_allowed(list(stored), wanted)
    assert authorizer.index.names == new.names
    for each in (TOPIC, GROUP):
        assert authorizer.index.lengths_of(each) == new.lengths_of(each)


@given(
    st.sets(acls.filter(lambda each: each.pattern.name != ""), max_size=8),
    actions,
    st.booleans(),
)
def test_any_resource_is_allowed_if_one_name_is(
    stored: set[Acl], wanted: Action, allow: bool
) -> None:
    wanted = wanted._replace(operation=Operation.WRITE)
    rules = AuthorizerRules(allow_if_no_acl=allow)
    index = AclIndex(stored)
    found = allows_any(index, rules, wanted.principal, wanted.host, wanted.operation, wanted.type)
    candidates = ["a", "ab", "abc", "b", "a-new", "ab-new", "abc-new", "b-new", "new", "*new"]
    by_name = any(
        decide(index, rules, wanted._replace(name=name)).is_allowed for name in candidates
    )
    if not allow:
        # Kafka counts an allowed wildcard even if prefixes deny every name that a client uses.
        assert found or not by_name
    has_deny = any(each.entry.permission is DENY for each in stored)
    if not has_deny and not allow:
        assert found == by_name


def test_any_topic_is_denied_by_wildcard_and_by_dominating_prefix() -> None:
    def check(*stored: Acl) -> bool:
        return allows_any(AclIndex(stored), NO_RULES, "User:alice", "h", Operation.WRITE, TOPIC)

    write = acl(operation=Operation.WRITE)
    assert not check()
    assert check(write)
    assert not check(write, acl(DENY, Operation.WRITE, name="*"))
    assert not check(write, acl(DENY, Operation.WRITE))
    assert not check(write, acl(DENY, Operation.ALL, name="o", pattern=PREFIXED))
    assert check(write, acl(DENY, Operation.WRITE, name="orders-", pattern=PREFIXED))
    assert not check(
        acl(operation=Operation.WRITE, name="ord", pattern=PREFIXED),
        acl(DENY, Operation.WRITE, name="o", pattern=PREFIXED),
    )
    assert check(acl(operation=Operation.WRITE, name="*"), acl(DENY, Operation.WRITE))


def test_super_user_may_write_any_topic() -> None:
    rules = AuthorizerRules(super_users=frozenset({"User:alice"}))
    index = AclIndex([acl(DENY, Operation.WRITE, name="*")])
    assert allows_any(index, rules, "User:alice", "h", Operation.WRITE, TOPIC)


# ---- the authorizer -----------------------------------------------------------------------------


def test_changed_acl_changes_cached_decisions() -> None:
    authorizer = AclAuthorizer(NO_RULES)
    rule = acl(operation=Operation.WRITE)
    wanted = action(Operation.WRITE)
    key = wanted.principal, wanted.host, wanted.operation, wanted.type
    for entries in ([rule.entry], [], [rule.entry]):
        authorizer.replace(rule.pattern, entries)
        assert authorizer.allows(wanted) is bool(entries)
        assert authorizer.allows_any(*key) is bool(entries)
    authorizer.use_index(AclIndex())
    assert not authorizer.allows(wanted)
    assert not authorizer.allows_any(*key)


def test_cached_decisions_are_bounded() -> None:
    authorizer = AclAuthorizer(NO_RULES)
    for number in range(CACHED_DECISIONS_MAX + 10):
        authorizer.allows(action(name=f"t{number}"))
    assert len(authorizer.decisions) <= CACHED_DECISIONS_MAX


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_super_users("") == frozenset()
    assert parse_super_users("User:a;User:CN=b,O=c ;") == {"User:a", "User:CN=b,O=c"}
    with pytest.raises(ValueError, match="alice"):
        parse_super_users("alice")
