"""`barnabas broker`: one broker process, configured like Kafka's."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.broker.broker import BrokerServer
from barnabas.cli.brokers import interpreter
from barnabas.cli.brokers.broker_id import with_broker_id
from barnabas.cli.options import parse_overrides, read_properties
from barnabas.cli.terminal.log import LogOptions, log_options, report_warning, start_logging
from barnabas.cli.terminal.shutdown import ShutdownSignals
from barnabas.cluster.jaas_sections import with_jaas_sections
from barnabas.cluster.real_world import close_world, real_world
from barnabas.cluster.settings import with_absolute_log_dirs
from barnabas.config import BrokerConfig
from barnabas.config.load import load_broker_config
from barnabas.world.clock import SystemClock
from barnabas.world.network import raise_descriptor_limit
from barnabas.world.registry.embedded import EmbeddedRegistry

if TYPE_CHECKING:
    from barnabas.world.registry.zookeeper import ZooKeeperRegistry

logger = logging.getLogger("barnabas.broker")


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Setting that overrides CONFIG; repeatable.",
)
@log_options
def broker(config: Path, overrides: tuple[str, ...], log_level: str, log_format: str) -> None:
    """Run one broker. CONFIG is a server.properties file.

    \b
    Exit codes:
      0   clean shutdown after SIGINT or SIGTERM
      1   the broker could not start or failed, or all its log directories failed
      2   wrong usage or a wrong setting
      75  the event loop was stuck for longer than zookeeper.session.timeout.ms.
          The log has the stack. Restart the broker (systemd: Restart=on-failure).
    """
    logs = LogOptions(log_level, log_format)
    start_logging(logs)
    interpreter.log_version()
    raise_descriptor_limit()
    interpreter.tune_interpreter()
    settings, warnings = load_broker_config(read_properties(config), parse_overrides(overrides))
    for warning in warnings:
        report_warning(warning, logs)
    asyncio.run(run_broker(with_jaas_sections(with_absolute_log_dirs(settings))))


async def run_broker(settings: BrokerConfig) -> None:
    shutdown = ShutdownSignals()
    registry = await open_broker_registry(settings)
    try:
        settings = await with_broker_id(settings, registry)
        running = BrokerServer(settings, real_world(registry, settings, ends_process=True))
        await shutdown.run_until_requested(running.start())
        try:
            await wait_for_any(shutdown.requested, running.halted)
        finally:
            await running.stop(clean=running.failure is None)
            close_world(running.world)
    finally:
        await registry.close()
    if running.failure is not None:
        raise running.failure


async def wait_for_any(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


async def open_broker_registry(settings: BrokerConfig) -> EmbeddedRegistry | ZooKeeperRegistry:
    """Return the ZooKeeper of zookeeper.connect, or open an embedded registry, which no other process can use."""
    if settings.zookeeper_connect is not None:
        # Imported here because a broker with an embedded registry does not need Kazoo.
        from barnabas.cluster.zookeeper_client import build_security, read_settings
        from barnabas.world.registry.zookeeper import ZooKeeperRegistry

        security = read_settings(settings.security)
        timeout_ms = settings.zookeeper_connection_timeout_ms
        logger.info(
            "connecting to ZooKeeper connect=%s tls=%s user=%s set_acl=%s",
            settings.zookeeper_connect,
            "on" if security.tls else "off",
            security.user.name if security.user else "none",
            "on" if security.set_acl else "off",
        )
        return ZooKeeperRegistry(
            settings.zookeeper_connect,
            connection_timeout_ms=(
                settings.zookeeper_session_timeout_ms if timeout_ms is None else timeout_ms
            ),
            in_flight_max=settings.zookeeper_max_in_flight_requests,
            security=build_security(security),
        )
    registry = EmbeddedRegistry(settings.registry_dir, SystemClock())
    await registry.open()
    logger.info(
        "embedded registry directory=%s: no other process can join this cluster; for brokers in several "
        "processes start a ZooKeeper (`barnabas zookeeper`) and set zookeeper.connect",
        settings.registry_dir,
    )
    replicas = settings.offsets_topic_replication_factor
    if replicas > 1:
        logger.warning(
            "consumer groups cannot be used: offsets.topic.replication.factor=%d, but this cluster has one broker; "
            "set it to 1",
            replicas,
        )
    return registry
