"""`barnabas registry secure` and `unsecure`: set the ACLs of all znodes of a cluster in a ZooKeeper.

world/registry/znode_acls.py defines the ACLs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.options import dry_run_option, output_option
from barnabas.cli.registry.failures import reported_errors
from barnabas.cli.registry.zookeeper_config import read_command_settings, zookeeper_config_option
from barnabas.cli.terminal.output import OutputFormat, plural, show
from barnabas.errors import ConfigError, NoNode

if TYPE_CHECKING:
    from barnabas.world.registry.zookeeper import ZooKeeperSession

TIMEOUT_MS = 30_000
IN_FLIGHT_MAX = 100

zookeeper_option = click.option(
    "--zookeeper",
    metavar="HOST:PORT,…",
    required=True,
    help="ZooKeeper of the cluster; the format is that of zookeeper.connect, with the chroot.",
)


@click.command()
@zookeeper_option
@zookeeper_config_option
@dry_run_option
@output_option
def secure(
    zookeeper: str, zookeeper_config: str | None, dry_run: bool, output: OutputFormat
) -> None:
    """Set the ACLs of all znodes: everyone may read, only the brokers may write.

    \b
    Znodes with users and passwords can be read by the brokers only.
    Log in with the identity of the brokers. First restart all brokers with
    zookeeper.set.acl=true, so that new znodes get ACLs too.
    """
    run_command(zookeeper, zookeeper_config, is_secure=True, dry_run=dry_run, output=output)


@click.command()
@zookeeper_option
@zookeeper_config_option
@dry_run_option
@output_option
def unsecure(
    zookeeper: str, zookeeper_config: str | None, dry_run: bool, output: OutputFormat
) -> None:
    """Remove the ACLs of all znodes: everyone may read and write them.

    \b
    Log in with the identity of the brokers. First restart all brokers with
    zookeeper.set.acl=false, so that new znodes are open too.
    """
    run_command(zookeeper, zookeeper_config, is_secure=False, dry_run=dry_run, output=output)


def run_command(
    zookeeper: str, config: str | None, *, is_secure: bool, dry_run: bool, output: OutputFormat
) -> None:
    with reported_errors():
        count = change_acls(zookeeper, config, is_secure=is_secure, dry_run=dry_run)
    show(output, {"secure": is_secure, "znodes": count, "dry_run": dry_run}, changed_text)


def changed_text(document: dict[str, Any]) -> str:
    """
    >>> changed_text({"secure": True, "znodes": 1, "dry_run": True})
    'would secure 1 znode'
    """
    verb = "secure" if document["secure"] else "open"
    past = "secured" if document["secure"] else "opened"
    return (
        f"{f'would {verb}' if document['dry_run'] else past} {plural(document['znodes'], 'znode')}"
    )


def change_acls(
    connect: str,
    config: str | None,
    *,
    is_secure: bool,
    dry_run: bool = False,
    session_timeout_ms: int = TIMEOUT_MS,
    connection_timeout_ms: int = TIMEOUT_MS,
) -> int:
    """Set the ACLs of a cluster, and return the number of its znodes. Raises ConfigError and RegistryError."""
    from barnabas.cluster.zookeeper_client import build_security
    from barnabas.world.registry.zookeeper import ZooKeeperRegistry

    settings = read_command_settings(config)
    if not settings.has_identity:
        raise ConfigError(
            "--zookeeper",
            "the connection to ZooKeeper needs a login or a client certificate: name a file with "
            "--zookeeper-config, or a JAAS file in KAFKA_OPTS",
        )
    registry = ZooKeeperRegistry(
        connect,
        connection_timeout_ms=connection_timeout_ms,
        in_flight_max=IN_FLIGHT_MAX,
        create_chroot=False,
        security=build_security(settings),
    )

    async def run() -> int:
        try:
            session = await registry.connect(session_timeout_ms)
            return await set_acls(session, is_secure=is_secure, dry_run=dry_run)
        finally:
            await registry.close()

    return asyncio.run(run())


async def set_acls(session: ZooKeeperSession, *, is_secure: bool, dry_run: bool) -> int:
    """Set the ACLs of the root and of all trees of the cluster, parents first. Returns the number of znodes."""
    from barnabas.world.registry.znode_acls import SECURE_ROOTS

    async def set_one(path: str) -> list[str]:
        if not dry_run:
            await session.set_acl(path, is_secure=is_secure)
        return [f"{path}/{name}" for name in await session.children(path)]

    async def set_if_present(path: str) -> list[str] | None:
        """Return the children of the znode; None if another client deletes it meanwhile."""
        try:
            return await set_one(path)
        except NoNode:
            return None

    names = await session.children("/")
    level = [root for root in SECURE_ROOTS if root.removeprefix("/") in names]
    if not level:
        raise ConfigError("--zookeeper", "there is no cluster at this address: check the chroot")
    await set_one("/")
    count = 1
    while level:
        found = [
            each for each in await asyncio.gather(*map(set_if_present, level)) if each is not None
        ]
        count += len(found)
        level = [path for children in found for path in children]
    return count
