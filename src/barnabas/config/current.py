"""The current configuration of a running broker: the settings of its file, changed by dynamic settings.

`CurrentConfig` is the only owner of both. Components that use settings which can change get a new BrokerConfig:

    current.on_change(replicas.reconfigure)                          called with the old and the new configuration
    current.update(DynamicSettings(broker={"max.connections": "100"}))

A BrokerConfig never changes. Components that only use read-only settings keep the one they were created with.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec.structs import replace

from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import (
    DynamicSettings,
    Settings,
    build_effective,
    check_protocols,
    select_valid,
)
from barnabas.errors import ConfigError

logger = logging.getLogger("barnabas.config")

ERRORS_LOGGED_MAX = 20

OnChange = Callable[[BrokerConfig, BrokerConfig], None]


class CurrentConfig:
    """The static and dynamic settings of one broker. `value` is the effective configuration."""

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        self.stored = DynamicSettings()
        """The dynamic settings in the registry, without invalid ones."""
        self.dynamic = self.stored
        """The dynamic settings in effect. They differ from the stored ones if these cannot be used."""
        self.value = static
        self.listeners: list[OnChange] = []

    def on_change(self, listener: OnChange) -> None:
        """Call `listener` with the old and the new configuration after each change."""
        self.listeners.append(listener)

    def update_broker(self, settings: Settings) -> None:
        """Replace the dynamic settings of this broker. Invalid settings are logged and ignored."""
        valid = self.drop_invalid(settings, per_broker=True)
        self.update(replace(self.stored, broker=valid))

    def update_default(self, settings: Settings) -> None:
        """Replace the dynamic settings of all brokers. Invalid settings are logged and ignored."""
        valid = self.drop_invalid(settings, per_broker=False)
        self.update(replace(self.stored, default=valid))

    def drop_invalid(self, settings: Settings, *, per_broker: bool) -> dict[str, str]:
        valid, errors = select_valid(settings, per_broker=per_broker)
        for error in errors[:ERRORS_LOGGED_MAX]:
            logger.error("ignoring dynamic setting error=%s", error)
        if len(errors) > ERRORS_LOGGED_MAX:
            logger.error("ignoring more dynamic settings count=%d", len(errors) - ERRORS_LOGGED_MAX)
        return valid

    def update(self, stored: DynamicSettings) -> None:
        """Use these valid settings.

        Log an error and keep the configuration if they contradict each other, or change the security protocol of a
        listener.
        """
        if stored == self.stored:
            return
        self.stored = stored
        try:
            config = build_effective(self.static, stored)
            check_protocols(self.value, config)
        except ConfigError as error:
            logger.error("cannot apply dynamic settings error=%s", error)
            return
        self.dynamic = stored
        before, self.value = self.value, config
        logger.info("applied dynamic settings names=%s", ",".join(sorted(stored.merged)) or "-")
        for listener in self.listeners:
            try:
                listener(before, config)
            except Exception:
                logger.exception("cannot apply dynamic settings")
