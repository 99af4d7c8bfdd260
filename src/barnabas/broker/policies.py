"""Calls the policies of the operator: loads their classes, and keeps slow or failing ones from harming the broker.

A policy runs in a thread of its own, one call at a time, so it need not be thread-safe. A call that takes longer than
barnabas.policy.timeout.ms fails, and so do all later calls until it returns. So at most one thread per policy is stuck.
Any other failure of a policy rejects the request with UNKNOWN_SERVER_ERROR, as in Kafka.

Names of classes come from the broker's configuration only, never from a request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from barnabas.broker.plugins import create_plugin
from barnabas.config import BrokerConfig
from barnabas.errors import ApiError, ErrorCode
from barnabas.log_rate_limiter import LogRateLimiter
from barnabas.policies import ConfigChange, PolicyViolation, TopicCreation
from barnabas.world.ports import DirectCaller, ThreadCaller

logger = logging.getLogger("barnabas.policies")

ENTRY_POINT_GROUP = "barnabas.policies"
CREATE_TOPIC_POLICY = "create.topic.policy.class.name"
ALTER_CONFIG_POLICY = "alter.config.policy.class.name"
FAILURE_LOG_INTERVAL_S = 10.0


class PolicyRunner:
    """One policy. Its calls are serialized and bounded in time."""

    def __init__(
        self, setting: str, policy: Any, caller: ThreadCaller, *, timeout_s: float
    ) -> None:
        self.setting = setting
        self.policy = policy
        self.caller = caller
        self.timeout_s = timeout_s
        self.lock = asyncio.Lock()
        self.last_call: asyncio.Future[BaseException | None] | None = None
        self.deadline_s = 0.0
        """Time of the event loop at which the last call times out."""
        self.failure_log_limiter = LogRateLimiter(FAILURE_LOG_INTERVAL_S)

    async def check(self, request: TopicCreation | ConfigChange) -> ApiError | None:
        """Return the error of the request, or None if the policy accepts it."""
        return await self.run(partial(self.policy.validate, request))

    async def close(self) -> None:
        """Call `close` of the policy, if it has one."""
        close = getattr(self.policy, "close", None)
        if close is not None:
            await self.run(close)

    async def run(self, call: Callable[[], object]) -> ApiError | None:
        """Call a method of the policy, after all earlier calls."""
        loop = asyncio.get_running_loop()
        async with self.lock:
            if self.last_call is not None and not self.last_call.done():
                # Its client has disconnected, or it is over its deadline.
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(self.deadline_s):
                        await asyncio.shield(self.last_call)
                if not self.last_call.done():
                    why = f"the policy of {self.setting} is still busy with an earlier request"
                    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, why)
            self.last_call = self.caller.start(partial(catch_all, call))
            self.deadline_s = loop.time() + self.timeout_s
            with suppress(TimeoutError):
                async with asyncio.timeout(self.timeout_s):
                    return self.to_api_error(await asyncio.shield(self.last_call))
        logger.error(
            "policy does not return setting=%s timeout_s=%g; rejecting requests until it does",
            *(self.setting, self.timeout_s),
        )
        why = f"the policy of {self.setting} did not return within {self.timeout_s:g} s"
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, why)

    def to_api_error(self, raised: BaseException | None) -> ApiError | None:
        """Return the error for the client. Any exception but PolicyViolation is a defect of the policy."""
        if raised is None:
            return None
        if isinstance(raised, PolicyViolation):
            return ApiError(ErrorCode.POLICY_VIOLATION, str(raised))
        if self.failure_log_limiter.is_due(asyncio.get_running_loop().time()):
            logger.error("policy failed setting=%s", self.setting, exc_info=raised)
        why = f"the policy of {self.setting} failed: {type(raised).__name__}"
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, why)


def catch_all(call: Callable[[], object]) -> BaseException | None:
    """Call a method of a policy. Return what it raises, even SystemExit, which would end the broker."""
    try:
        call()
    except BaseException as error:  # noqa: BLE001 (reported by the caller)
        return error
    return None


class Policies:
    """The policies of a broker; None if a setting is not set."""

    def __init__(
        self, create_topic: PolicyRunner | None = None, alter_config: PolicyRunner | None = None
    ) -> None:
        self.create_topic = create_topic
        self.alter_config = alter_config

    async def close(self) -> None:
        for runner in (self.create_topic, self.alter_config):
            if runner is not None:
                await runner.close()


async def check_create_topic_policy(policies: Policies, creation: TopicCreation) -> ApiError | None:
    """Return the error of a topic that the policy rejects, or None."""
    if policies.create_topic is None:
        return None
    return await policies.create_topic.check(creation)


async def check_alter_config_policy(
    policies: Policies, resource_type: str, resource_name: str, configs: Mapping[str, str | None]
) -> ApiError | None:
    """Return the error of a change that the policy rejects, or None.

    AlterConfigs and IncrementalAlterConfigs call it after their own checks and before they write, also if they only
    validate. `resource_type` is `topic` or `broker`: broker loggers have no policy. `configs` has the entries of the
    request, with None for each that is removed.
    """
    if policies.alter_config is None:
        return None
    return await policies.alter_config.check(ConfigChange(resource_type, resource_name, configs))


# ---- loading ------------------------------------------------------------------------------------


def load_policies(config: BrokerConfig, caller: ThreadCaller | None = None) -> Policies:
    """Load the policies that the settings name. Raises ConfigError if one cannot be loaded."""
    runners = []
    for setting, name in (
        (CREATE_TOPIC_POLICY, config.create_topic_policy_class_name),
        (ALTER_CONFIG_POLICY, config.alter_config_policy_class_name),
    ):
        runner = None
        if name:
            policy = create_plugin(
                setting,
                "policy",
                config.properties,
                name=name,
                group=ENTRY_POINT_GROUP,
                method="validate",
            )
            runner = PolicyRunner(
                setting,
                policy,
                caller or DirectCaller(),
                timeout_s=config.barnabas_policy_timeout_ms / 1000,
            )
        runners.append(runner)
    return Policies(*runners)
