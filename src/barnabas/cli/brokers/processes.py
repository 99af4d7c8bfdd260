"""Brokers of one cluster with a ZooKeeper ensemble. Each broker is a child process.

    <data>/broker-<id>.properties    its settings            <data>/broker-<id>.log    its output
    <data>/broker-<id>/              its logs                <data>/zookeeper/         the ZooKeeper, if started here

The brokers end with their parent, even if the parent is killed. A broker that exited because its event loop was stuck
is restarted. If a broker ends for another reason, a line on standard error reports it, and the others continue.
"""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import Process
from collections.abc import Collection, Mapping
from pathlib import Path

from msgspec.structs import replace

from barnabas.cli.brokers.broker_process import (
    exit_text,
    failure_reason,
    read_view,
    shows_cluster,
    start_broker_process,
)
from barnabas.cli.terminal.output import print_note
from barnabas.cluster.local_security import LocalSecurity
from barnabas.cluster.security_files import write_private
from barnabas.cluster.settings import (
    FIRST_BROKER_ID,
    HOST,
    HTTP_LISTENER,
    broker_properties,
    validate_settings,
)
from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from barnabas.config.load import load_broker_config
from barnabas.config.properties import properties_text
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.model import Endpoint
from barnabas.security.client_settings import PLAINTEXT, ClientSecurity
from barnabas.tasks import in_thread
from barnabas.world.network import HeldPort
from barnabas.world.watchdog import STUCK_EXIT_CODE

SESSION_SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "18000",
}
"""On one machine, a broker that was killed should soon count as failed. Kafka's default is 18 s."""
CONNECTION_TIMEOUT_MS = 18_000
READY_TIMEOUT_SECONDS = 60.0
READY_CHECK_SECONDS = 0.05
REPORT_INTERVAL_SECONDS = 1.0
ZOOKEEPER_CHECK_SECONDS = 0.5
STOP_TIMEOUT_SECONDS = 60.0
RESTARTS_MAX = 5
RESTARTS_PERIOD_SECONDS = 600.0
FIRST_BACK_OFF_SECONDS = 1.0


class BrokerProcesses:
    """Brokers as child processes. `await start()`, in the main thread; use `bootstrap_servers`; `await stop()`."""

    def __init__(
        self,
        data: Path,
        zookeeper: str | None,
        *,
        brokers: int,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        security: LocalSecurity | None = None,
    ) -> None:
        """`zookeeper` is the connect string of an ensemble. If it is None, `start` also starts a ZooKeeper server.
        `security` secures the listeners of the brokers, not ZooKeeper.
        """
        validate_settings(brokers, settings or {})
        self.data = data
        self.security = security
        self.zookeeper = zookeeper
        self.servers = ZooKeeperServers(data / "zookeeper") if zookeeper is None else None
        self.port = port
        self.settings = dict(settings or {})
        self.ids: Collection[int] = range(FIRST_BROKER_ID, FIRST_BROKER_ID + brokers)
        # A wrong setting is reported before anything is started.
        config, self.warnings = load_broker_config(self.properties(FIRST_BROKER_ID, port))
        self.session_timeout_s = config.zookeeper_session_timeout_ms / 1000
        self.http_listener = config.barnabas_http_listener
        self.ports: dict[int, HeldPort] = {}
        self.http_ports: dict[int, HeldPort] = {}
        self.running: dict[int, Process] = {}
        self.watchers: list[asyncio.Task[None]] = []
        self.failure: StorageError | None = None
        """Never set: a broker process that fails exits, and `watch` reports it."""

    @property
    def registry_option(self) -> str:
        return f"--zookeeper {self.zookeeper}"

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{held.port}" for held in self.ports.values())

    @property
    def client_security(self) -> ClientSecurity:
        return PLAINTEXT if self.security is None else self.security.client_security()

    def http_listener_of(self, broker_id: int) -> Endpoint | None:
        """Return the address of the broker's metrics, with the port that is held for it."""
        listener, held = self.http_listener, self.http_ports.get(broker_id)
        if listener is None or held is None:
            return listener
        return replace(listener, port=held.port)

    @property
    def http_addresses(self) -> list[str]:
        listeners = map(self.http_listener_of, self.http_ports)
        return [each.address for each in listeners if each is not None]

    def properties(self, broker_id: int, port: int) -> dict[str, str]:
        registry = {"zookeeper.connect": self.zookeeper} if self.zookeeper else {}
        settings = {**SESSION_SETTINGS, **registry, **self.settings}
        return broker_properties(
            self.data,
            broker_id,
            port,
            brokers=len(self.ids),
            settings=settings,
            security=self.security,
        )

    def path(self, broker_id: int, kind: str) -> Path:
        return self.data / f"broker-{broker_id}.{kind}"

    async def start(self) -> None:
        """Start the brokers. Returns when the metadata of every broker shows all brokers and a controller."""
        try:
            self.data.mkdir(parents=True, exist_ok=True)
            if self.servers is not None:
                await in_thread(self.servers.start)
                self.zookeeper = self.servers.connect_string
            if self.security is not None:
                await in_thread(self.security.write_files)
                await self.create_users(self.security)
            for number, broker_id in enumerate(self.ids):
                self.ports[broker_id] = HeldPort(HOST, self.port + number if self.port else 0)
                if self.http_listener is not None:
                    listener = self.http_listener
                    self.http_ports[broker_id] = HeldPort(listener.host, listener.port)
            for broker_id in self.ids:
                await self.start_broker(broker_id)
            await self.wait_until_ready()
        except BaseException:
            await self.stop()
            raise
        for broker_id in self.running:
            self.watchers.append(asyncio.create_task(self.watch(broker_id)))
        if self.servers is not None:
            self.watchers.append(asyncio.create_task(self.watch_zookeeper(self.servers)))

    async def create_users(self, security: LocalSecurity) -> None:
        from barnabas.world.registry.zookeeper import ZooKeeperRegistry

        assert self.zookeeper is not None
        registry = ZooKeeperRegistry(self.zookeeper, connection_timeout_ms=CONNECTION_TIMEOUT_MS)
        try:
            await security.create_users(registry)
        finally:
            await registry.close()

    async def start_broker(self, broker_id: int) -> None:
        properties = self.properties(broker_id, self.ports[broker_id].port)
        listener = self.http_listener_of(broker_id)
        if listener is not None:
            properties[HTTP_LISTENER] = listener.address
        config = self.path(broker_id, "properties")
        write_private(config, properties_text(properties).encode("ascii"))  # it may have passwords
        with self.path(broker_id, "log").open("ab") as log:
            self.running[broker_id] = await start_broker_process(
                [str(config)], log, death_signal=signal.SIGKILL
            )

    async def wait_until_ready(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READY_TIMEOUT_SECONDS
        report_at = loop.time() + REPORT_INTERVAL_SECONDS
        reported: set[int] = set()
        while not await asyncio.to_thread(self.is_ready):
            for broker_id, process in self.running.items():
                if process.returncode is not None:
                    raise self.start_error(broker_id, process.returncode)
            if loop.time() > deadline:
                why = f"the brokers formed no cluster within {READY_TIMEOUT_SECONDS:g} s; see {self.data}/broker-*.log"
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, why)
            if loop.time() > report_at:
                report_at += REPORT_INTERVAL_SECONDS
                self.report_waiting(reported)
            await asyncio.sleep(READY_CHECK_SECONDS)

    def report_waiting(self, reported: set[int]) -> None:
        """Print the last log line of each broker once, if it is a warning: it says what the broker waits for."""
        for broker_id in self.ids:
            last = self.log_lines(broker_id)[-1:]
            if broker_id not in reported and last and " WARNING " in last[0]:
                reported.add(broker_id)
                log = self.path(broker_id, "log")
                print_note(f"still starting: broker {broker_id}: {last[0]} (see {log})")

    def is_ready(self) -> bool:
        servers = self.bootstrap_servers.split(",")
        views = (read_view(each, 5.0, self.client_security) for each in servers)
        return all(shows_cluster(view, self.ids) for view in views)

    def find_controller(self) -> int | None:
        view = read_view(self.bootstrap_servers, 2.0, self.client_security)
        return None if view is None else view.controller

    def start_error(self, broker_id: int, code: int) -> ApiError:
        from barnabas.cli.terminal.failure import ErrorWithHint

        error = ApiError(ErrorCode.BROKER_NOT_AVAILABLE)
        why = f"broker {broker_id} {exit_text(code)}: {failure_reason(self.log_lines(broker_id))}"
        return ErrorWithHint(error, why, f"see {self.path(broker_id, 'log')}")

    def log_lines(self, broker_id: int) -> list[str]:
        return self.path(broker_id, "log").read_text(errors="backslashreplace").splitlines()

    async def watch(self, broker_id: int) -> None:
        code = await self.running[broker_id].wait()
        restarts = RestartBackoff()
        while code == STUCK_EXIT_CODE:
            delay_s = restarts.next_delay(asyncio.get_running_loop().time())
            print_note(stuck_text(broker_id, delay_s, self.path(broker_id, "log")))
            if delay_s is None:
                break
            await asyncio.sleep(delay_s)
            try:
                await self.start_broker(broker_id)
            except OSError as error:
                print_note(f"cannot restart broker {broker_id}: {error}")
                break
            code = await self.running[broker_id].wait()
        config = self.path(broker_id, "properties")
        restart = f"`barnabas broker {config}` restarts it"
        # After a clean shutdown the controller knows at once; after a crash when the session times out.
        within = f"within {self.session_timeout_s:g} s (zookeeper.session.timeout.ms)"
        others = "the others continue" if code == 0 else f"the others detect this {within}"
        print_note(f"broker {broker_id} {exit_text(code)}; {others}.", f"  {restart}")

    async def watch_zookeeper(self, servers: ZooKeeperServers) -> None:
        while True:
            for node, code in servers.collect_ended().items():
                options = f"--data {servers.data} --port {servers.ports[node - 1]}"
                print_note(
                    f"ZooKeeper {exit_text(code)}; the brokers continue with their metadata, but topics and leaders "
                    f"cannot change without it. `barnabas zookeeper {options}` restarts it "
                    f"(see {servers.log_path(node)})"
                )
            await asyncio.sleep(ZOOKEEPER_CHECK_SECONDS)

    def kill(self, _exit_code: int) -> None:
        """Kill all brokers after a second signal. They recover at their next start."""
        print_note("second signal: killing the brokers")
        for process in self.running.values():
            if process.returncode is None:
                process.kill()

    async def stop(self) -> None:
        """Stop all brokers, the controller last: it takes part in the controlled shutdown of the others."""
        for task in self.watchers:
            task.cancel()
        # A watcher may be restarting a broker.
        await asyncio.gather(*self.watchers, return_exceptions=True)
        last = await asyncio.to_thread(self.find_controller)
        await terminate([process for broker, process in self.running.items() if broker != last])
        await terminate([process for broker, process in self.running.items() if broker == last])
        for held in (*self.ports.values(), *self.http_ports.values()):
            held.release()
        self.running.clear()
        self.ports.clear()
        self.http_ports.clear()
        if self.servers is not None:
            await asyncio.to_thread(self.servers.stop)


class RestartBackoff:
    """Back-off for restarts of one broker: delays double, up to RESTARTS_MAX times in RESTARTS_PERIOD_SECONDS."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def next_delay(self, now: float) -> float | None:
        """Count a restart and return the seconds to wait before it, or None to give up."""
        self.times = [at for at in self.times if now - at < RESTARTS_PERIOD_SECONDS]
        if len(self.times) >= RESTARTS_MAX:
            return None
        self.times.append(now)
        return FIRST_BACK_OFF_SECONDS * 2.0 ** (len(self.times) - 1)


def stuck_text(broker_id: int, delay_s: float | None, log: Path) -> str:
    """
    >>> stuck_text(2, 1.0, Path("broker-2.log"))
    'broker 2 was stuck and exited (exit code 75, stack in broker-2.log); restarting it in 1 s'
    """
    what = f"broker {broker_id} was stuck and exited (exit code {STUCK_EXIT_CODE}, stack in {log})"
    if delay_s is not None:
        return f"{what}; restarting it in {delay_s:g} s"
    minutes = RESTARTS_PERIOD_SECONDS / 60
    return f"{what}; not restarting it: it was restarted {RESTARTS_MAX} times in {minutes:g} min"


async def terminate(processes: list[Process]) -> None:
    """Send SIGTERM and wait; kill processes that do not end within STOP_TIMEOUT_SECONDS."""
    for process in processes:
        if process.returncode is None:
            process.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_SECONDS):
            for process in processes:
                await process.wait()
    except TimeoutError:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
