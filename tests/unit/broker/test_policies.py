"""Create and alter policies: loading by name, and calls that reject, fail or block."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.policies import (
    Policies,
    PolicyRunner,
    check_alter_config_policy,
    check_create_topic_policy,
    load_policies,
)
from barnabas.config.load import load_broker_config
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.policies import TopicCreation
from barnabas.world.call_thread import DaemonThreadCaller
from tests.unit.broker import sample_policies

PAGE = Path(__file__).parents[3] / "docs" / "policies.md"
SAMPLES = "tests.unit.broker.sample_policies"
CREATE, ALTER = "create.topic.policy.class.name", "alter.config.policy.class.name"


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    sample_policies.RELEASE.clear()
    yield
    sample_policies.RELEASE.set()


def load(**settings: str) -> Policies:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    named["listeners"] = "PLAINTEXT://127.0.0.1:9092"
    config, warnings = load_broker_config(named)
    assert not warnings
    return load_policies(config, DaemonThreadCaller())


def creation(name: str) -> TopicCreation:
    return TopicCreation(name, 1, 1, None, {})


async def check(policies: Policies, name: str) -> ApiError | None:
    async with asyncio.timeout(30):
        return await check_create_topic_policy(policies, creation(name))


async def test_without_policies_everything_is_allowed() -> None:
    policies = load()
    assert await check(policies, "any") is None
    assert await check_alter_config_policy(policies, "topic", "t", {"a": "b"}) is None


async def test_policy_rejects_with_its_own_text() -> None:
    policies = load(create_topic_policy_class_name=f"{SAMPLES}:Prefixed")
    assert await check(policies, "team-a") is None
    error = await check(policies, "orders")
    assert error is not None
    assert error.code is ErrorCode.POLICY_VIOLATION
    assert error.message == "'orders' must start with 'team-'"


async def test_policy_gets_the_settings_of_the_broker() -> None:
    policies = load(
        create_topic_policy_class_name=f"{SAMPLES}:Prefixed", barnabas_policy_prefix="squad-"
    )
    assert await check(policies, "squad-a") is None
    assert await check(policies, "team-a") is not None


async def test_alter_policy_sees_resource_and_changes() -> None:
    policies = load(alter_config_policy_class_name=f"{SAMPLES}:ShortRetention")
    change = {"retention.ms": "7200000"}
    error = await check_alter_config_policy(policies, "topic", "orders", change)
    assert error is not None
    assert (error.code, error.message) == (ErrorCode.POLICY_VIOLATION, "topic orders: keep less")
    removal = {"retention.ms": None}
    assert await check_alter_config_policy(policies, "topic", "orders", removal) is None


@pytest.mark.parametrize(
    ("topic", "kind"),
    [("bug", "KeyError"), ("exit", "SystemExit"), ("stop-iteration", "StopIteration")],
)
async def test_failing_policy_is_a_server_error_without_details(topic: str, kind: str) -> None:
    policies = load(create_topic_policy_class_name=f"{SAMPLES}:Unreliable")
    error = await check(policies, topic)
    assert error is not None
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert error.message == f"the policy of {CREATE} failed: {kind}"
    assert await check(policies, "good") is None


async def test_failures_are_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    policies = load(create_topic_policy_class_name=f"{SAMPLES}:Unreliable")
    for _ in range(3):
        await check(policies, "bug")
    assert caplog.text.count(f"policy failed setting={CREATE}") == 1
    assert "KeyError: 'secret'" in caplog.text, "with a traceback"


async def test_blocked_policy_rejects_until_it_returns() -> None:
    policies = load(
        create_topic_policy_class_name=f"{SAMPLES}:Unreliable", barnabas_policy_timeout_ms="50"
    )
    error = await check(policies, "block")
    assert error is not None
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "did not return within 0.05 s" in error.message
    error = await check(policies, "good")
    assert error is not None
    assert "still busy" in error.message
    sample_policies.RELEASE.set()
    assert policies.create_topic is not None
    async with asyncio.timeout(30):
        await asyncio.shield(policies.create_topic.last_call)  # type: ignore[arg-type]
    assert await check(policies, "good") is None


async def test_call_waits_for_that_of_a_disconnected_client() -> None:
    policies = load(create_topic_policy_class_name=f"{SAMPLES}:Unreliable")
    abandoned = asyncio.create_task(check(policies, "block"))
    await asyncio.sleep(0)
    abandoned.cancel()
    await asyncio.gather(abandoned, return_exceptions=True)
    waiting = asyncio.create_task(check(policies, "good"))
    await asyncio.sleep(0)
    assert not waiting.done()
    sample_policies.RELEASE.set()
    assert await waiting is None


async def test_blocked_policy_does_not_block_the_loop() -> None:
    policies = load(create_topic_policy_class_name=f"{SAMPLES}:Unreliable")
    blocked = asyncio.create_task(check(policies, "block"))
    waiting = asyncio.create_task(check(policies, "good"))
    await asyncio.sleep(0)
    assert not blocked.done()
    assert not waiting.done(), "calls run one at a time"
    sample_policies.RELEASE.set()
    assert await blocked is None
    assert await waiting is None


async def test_close_calls_the_policy() -> None:
    policies = load(create_topic_policy_class_name=f"{SAMPLES}:Prefixed")
    await policies.close()
    assert isinstance(policies.create_topic, PolicyRunner)
    assert policies.create_topic.policy.is_closed


# ---- loading


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("org.example.JavaPolicy", "no entry point 'org.example.JavaPolicy'"),
        ("no.such.module:Policy", "No module named"),
        (f"{SAMPLES}:Nobody", "has no attribute 'Nobody'"),
        (f"{SAMPLES}:NOT_A_CLASS", "is not a class"),
        (f"{SAMPLES}:NoMethod", "has no method validate"),
        (f"{SAMPLES}:BrokenConstructor", "no database"),
        (f"{SAMPLES}:", "cannot create policy"),
        (":Policy", "cannot create policy"),
    ],
)
@pytest.mark.parametrize("setting", [CREATE, ALTER])
def test_unusable_policy_is_a_config_error(setting: str, name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        load(**{setting.replace(".", "_"): name})
    assert refused.value.key == setting


async def test_entry_point_is_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "sample_policies-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: sample-policies\nVersion: 1\n"
    )
    (installed / "entry_points.txt").write_text(
        f"[barnabas.policies]\nnaming = {SAMPLES}:Prefixed\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    policies = load(create_topic_policy_class_name="naming")
    assert (await check(policies, "orders")) is not None


def test_empty_name_means_no_policy() -> None:
    assert load(create_topic_policy_class_name="").create_topic is None


def test_policy_settings_need_the_prefix() -> None:
    loopback = {"listeners": "PLAINTEXT://127.0.0.1:9092"}
    config, warnings = load_broker_config({"barnabas.policy.max": "3", **loopback})
    assert config.properties["barnabas.policy.max"] == "3"
    assert not warnings
    with pytest.raises(ConfigError, match="no such broker setting"):
        load_broker_config({"barnabas.policies.max": "3"})


def test_policy_classes_accept_any_value_at_load_time() -> None:
    """The class is imported when the broker starts, not when a command reads its file."""
    settings: dict[str, Any] = {CREATE: "no.such.module:Policy"}
    config, _ = load_broker_config(settings)
    assert config.create_topic_policy_class_name == "no.such.module:Policy"


async def test_example_of_the_documentation_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = PAGE.read_text().split("```python\n", 1)[1].split("```", 1)[0]
    (tmp_path / "documented_rules.py").write_text(example)
    monkeypatch.syspath_prepend(str(tmp_path))
    policies = load(
        create_topic_policy_class_name="documented_rules:TopicRules",
        alter_config_policy_class_name="documented_rules:RetentionRules",
        barnabas_policy_prefix="squad-",
    )
    assert await check(policies, "squad-orders") is None
    assert await check(policies, "__consumer_offsets") is None
    assert await check(policies, "orders") is not None
    large = creation("squad-large")._replace(num_partitions=51)
    assert await check_create_topic_policy(policies, large) is not None
    unlimited = {"retention.ms": "-1"}
    assert await check_alter_config_policy(policies, "topic", "t", unlimited) is not None
    assert await check_alter_config_policy(policies, "broker", "1", unlimited) is None
