"""Log levels of the loggers of this process. Changes are not stored: they last until the broker restarts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from barnabas.broker.config_admin.operations import SettingChange, invalid_request
from barnabas.errors import ApiError, ErrorCode
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation

logger = logging.getLogger("barnabas.config")

LOGGER_PREFIX = "barnabas."
ROOT_LOGGER = "root"
LEVELS: Mapping[str, int] = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Python's level for each of Kafka's."""


def find_loggers() -> dict[str, logging.Logger]:
    """Return the root logger and each logger of this project, by name."""
    loggers = {
        name: each
        for name, each in logging.Logger.manager.loggerDict.items()
        if isinstance(each, logging.Logger) and (name + ".").startswith(LOGGER_PREFIX)
    }
    return {**loggers, ROOT_LOGGER: logging.getLogger()}


def logger_levels() -> dict[str, int]:
    """Return the effective level of each logger."""
    return {name: each.getEffectiveLevel() for name, each in find_loggers().items()}


def change_log_levels(changes: Iterable[SettingChange], *, validate_only: bool) -> None:
    """Set and reset log levels. A logger without its own level uses that of its parent. Raises ApiError."""
    loggers = find_loggers()
    changes = list(changes)
    for change in changes:
        check_log_level(change, loggers)
    if validate_only:
        return
    for name, operation, value in changes:
        is_reset = operation == ConfigOperation.DELETE
        loggers[name].setLevel(logging.NOTSET if is_reset else LEVELS[value or ""])
        logger.warning("changed log level logger=%s level=%s", name, "-" if is_reset else value)


def check_log_level(change: SettingChange, loggers: Mapping[str, logging.Logger]) -> None:
    name, operation, value = change
    if operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise invalid_request(f"{name}: log levels support only SET and DELETE")
    if name not in loggers:
        raise ApiError(ErrorCode.INVALID_CONFIG, unknown_logger(name, loggers))
    if operation == ConfigOperation.DELETE:
        if name == ROOT_LOGGER:
            raise invalid_request("the root logger must have a level")
    elif value not in LEVELS:
        why = f"{name}: {value!r} is not allowed, it must be one of {', '.join(LEVELS)}"
        raise ApiError(ErrorCode.INVALID_CONFIG, why)


def unknown_logger(name: str, loggers: Iterable[str]) -> str:
    from difflib import get_close_matches  # slow to import, and needed only here

    near = get_close_matches(name, list(loggers), n=1, cutoff=0.6)
    return f"{name}: no such logger" + (f"; did you mean {near[0]}?" if near else "")
