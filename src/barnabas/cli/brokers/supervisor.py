"""Supervisor of the brokers of a node: start each as a process, restart it after a crash, stop them in order.

Each broker inherits the settings of one file. Its own settings are `--override` options of its command line. Its output
goes to standard error with the prefix `broker <id> | `, or with a field `broker` if the log is JSON.

A broker that ends without a request is restarted after a pause. The pause doubles with each crash, up to 30 s, and
starts again at a second after a broker has run for a minute. A broker that was stopped with SIGTERM by another process
(`barnabas brokers decommission --stop`) stays stopped.

If the supervisor is killed, the kernel sends SIGTERM to each broker, which shuts down cleanly.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from random import Random

from msgspec.structs import replace

from barnabas.cli.brokers.broker_process import (
    exit_text,
    failure_reason,
    read_view,
    shows_cluster,
    start_broker_process,
)
from barnabas.cli.terminal.log import LogOptions
from barnabas.cli.terminal.output import print_note, to_json
from barnabas.client.view import ClusterView
from barnabas.cluster.node_settings import NodeBroker
from barnabas.errors import AddressInUse, reason
from barnabas.model import WILDCARD_HOSTS, BrokerId, Endpoint
from barnabas.retry import Backoff
from barnabas.security.client_settings import PLAINTEXT, ClientSecurity
from barnabas.world.network import HeldPort

logger = logging.getLogger("barnabas.node")

RESTART_S = (1.0, 30.0)
"""First and longest pause before a restart."""
STABLE_S = 60.0
"""After this time without a crash, the next pause is the first one again."""
READY_CHECK_S = 0.1
STOP_ONE_S = 30.0
"""The next brokers begin to stop after this time, even if the ones before them still run."""
STOP_IN_ORDER_S = 90.0
"""After this time, all other brokers begin to stop at once."""
STOP_ALL_S = 120.0
"""After this time, brokers that still run are killed."""
REQUESTED = (0, 128 + signal.SIGTERM, -signal.SIGTERM)
"""Exit codes after a requested stop: of a running broker, of a starting one, and before it handles signals."""
READ_BYTES = 1 << 16
LINE_BYTES_MAX = 1 << 16
VIEW_TIMEOUT_S = 2.0
VIEW_SERVERS_MAX = 3
TEXT_LOG = LogOptions()


class SupervisedBroker:
    """One broker: its current process, and the loop that restarts it until `stopping` is set."""

    def __init__(
        self,
        broker: NodeBroker,
        config: Path,
        overrides: Sequence[str],
        logs: LogOptions = TEXT_LOG,
    ) -> None:
        self.id = broker.id
        self.logs = logs
        self.server = local_address(broker.checked_endpoint)
        """`host:port` of the listener between brokers, as this machine reaches it."""
        every = [*overrides, *(f"{key}={value}" for key, value in broker.overrides.items())]
        overridden = (f"--override={each}" for each in every)
        self.arguments = [str(config), *overridden, *logs.arguments]
        self.process: Process | None = None
        self.exit_code: int | None = None
        """Exit code of the last process that ended; None before the first end and after a failed start."""
        self.last_lines: deque[str] = deque(maxlen=2)
        self.backoff = Backoff(*RESTART_S, random=Random())
        self.stopping = asyncio.Event()

    @property
    def is_running(self) -> bool:
        return self.process is not None

    @property
    def has_stopped_cleanly(self) -> bool:
        return self.process is None and self.exit_code in REQUESTED

    async def run(self) -> None:
        """Run the broker. Returns after a requested stop, or when the broker ends after `stopping` was set."""
        clock = asyncio.get_running_loop().time
        while not self.stopping.is_set():
            began = clock()
            why = await self.run_once()
            if self.exit_code in REQUESTED or self.stopping.is_set():
                logger.info("broker ended id=%d exit_code=%s", self.id, self.exit_code)
                return
            if clock() - began > STABLE_S:
                self.backoff.reset()
            logger.error(
                "broker crashed id=%d reason=%s restart_in_s=%g", self.id, why, self.backoff.delay_s
            )
            await wait_at_most(self.stopping, self.backoff.next_s())

    async def run_once(self) -> str:
        """Start the broker and wait for its end. Sets `exit_code` and returns the reason of the end."""
        self.last_lines.clear()
        self.exit_code = None
        try:
            process = await start_broker_process(self.arguments, PIPE, death_signal=signal.SIGTERM)
        except OSError as error:
            return f"cannot be started: {reason(error)}"
        self.process = process
        logger.info("broker started id=%d pid=%d", self.id, process.pid)
        if self.stopping.is_set():  # since the call above
            self.terminate()
        assert process.stdout is not None
        await self.forward(process.stdout)
        self.exit_code = await process.wait()
        self.process = None
        ending = exit_text(self.exit_code)
        # A process that was killed wrote nothing about it.
        has_reason = self.exit_code > 0
        return f"{ending}: {failure_reason(list(self.last_lines))}" if has_reason else ending

    async def forward(self, output: asyncio.StreamReader) -> None:
        """Print the output of the broker until its end, each line with the id of the broker."""
        rest = b""
        while chunk := await output.read(READ_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > LINE_BYTES_MAX:
                lines, rest = [*lines, rest], b""
            self.show(lines)
        if rest:
            self.show([rest])

    def show(self, lines: Iterable[bytes]) -> None:
        for each in lines:
            line = each.decode("utf-8", "surrogateescape")
            self.last_lines.append(line)
            is_json = self.logs.is_json
            print_note(json_log_line(self.id, line) if is_json else f"broker {self.id} | {line}")

    def terminate(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.terminate()

    def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()


class NodeSupervisor:
    """All brokers of a node. `start()` on the event loop of the main thread, then `await stop()`."""

    def __init__(
        self,
        brokers: Sequence[NodeBroker],
        config: Path,
        overrides: Sequence[str],
        logs: LogOptions = TEXT_LOG,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        """Reserve the ports of all brokers; port 0 gets its port here. `security` is for checks of the brokers.

        Raises AddressInUse.
        """
        self.security = security
        self.ports: list[HeldPort] = []
        try:
            reserved = [self.reserve_ports(each) for each in brokers]
        except AddressInUse:
            self.release_ports()
            raise
        self.brokers = {
            each.id: SupervisedBroker(each, config, overrides, logs) for each in reserved
        }
        self.tasks: dict[BrokerId, asyncio.Task[None]] = {}

    @property
    def servers(self) -> str:
        return ",".join(each.server for each in self.brokers.values())

    def start(self) -> None:
        for broker_id, broker in self.brokers.items():
            self.tasks[broker_id] = asyncio.create_task(broker.run(), name=f"broker {broker_id}")

    async def wait_until_ready(self) -> ClusterView:
        """Wait until the metadata of each broker shows all brokers of the node and a controller. Returns the last."""
        views = [await self.wait_for_view(each.server) for each in self.brokers.values()]
        return views[-1]

    async def wait_for_view(self, server: str) -> ClusterView:
        while True:
            view = await asyncio.to_thread(read_view, server, VIEW_TIMEOUT_S, self.security)
            if view is not None and shows_cluster(view, self.brokers):
                return view
            await asyncio.sleep(READY_CHECK_S)

    async def wait_until_all_ended(self) -> None:
        """Wait until every broker has ended on request, for example by `brokers decommission --stop`."""
        await asyncio.gather(*self.tasks.values())

    async def stop(self) -> bool:
        """Stop all brokers within two minutes. Returns whether all stopped cleanly."""
        for broker in self.brokers.values():
            broker.stopping.set()  # no restart from now on
        running = [broker_id for broker_id, each in self.brokers.items() if each.is_running]
        servers = [self.brokers[each].server for each in running[:VIEW_SERVERS_MAX]]
        view = await asyncio.to_thread(read_view, ",".join(servers), VIEW_TIMEOUT_S, self.security)
        now = asyncio.get_running_loop().time
        began = now()
        for wave in stop_waves(running, self.brokers, view):
            logger.info("stopping brokers ids=%s", ",".join(map(str, wave)))
            for broker_id in wave:
                self.brokers[broker_id].terminate()
            await self.wait_for_end(wave, min(STOP_ONE_S, began + STOP_IN_ORDER_S - now()))
        await self.wait_for_end(self.brokers, began + STOP_ALL_S - now())
        for broker in self.brokers.values():
            if broker.is_running:
                logger.error("broker killed id=%d reason=did not stop in time", broker.id)
            broker.kill()
        await asyncio.gather(*self.tasks.values())
        self.release_ports()
        return all(each.has_stopped_cleanly for each in self.brokers.values())

    async def wait_for_end(self, ids: Collection[BrokerId], timeout_s: float) -> None:
        if ids:
            await asyncio.wait([self.tasks[each] for each in ids], timeout=max(timeout_s, 0.0))

    def kill(self, _exit_code: int) -> None:
        """Kill all brokers after a second signal. They recover at their next start."""
        logger.warning("second signal, killing the brokers")
        for broker in self.brokers.values():
            broker.kill()

    def reserve_ports(self, broker: NodeBroker) -> NodeBroker:
        """Hold the ports of a broker, also while it waits for a restart. Returns the broker with the chosen ports."""
        listeners = []
        for each in broker.listeners:
            self.ports.append(HeldPort(each.host, each.port))
            listeners.append(replace(each, port=self.ports[-1].port))
        return replace(broker, listeners=tuple(listeners))

    def release_ports(self) -> None:
        for held in self.ports:
            held.release()


def json_log_line(broker: int, line: str) -> str:
    """Add the id of the broker to a line of its log. A line that is not JSON becomes the message.

    >>> json_log_line(1, '{"level":"INFO"}'), json_log_line(1, "error: x")
    ('{"broker":1,"level":"INFO"}', '{"broker":1,"message":"error: x"}')
    """
    if line.startswith('{"') and line.endswith("}"):
        return f'{{"broker":{broker},{line[1:]}'
    return to_json({"broker": broker, "message": line}, separators=(",", ":"))


def stop_waves(
    running: Sequence[BrokerId], node: Collection[BrokerId], view: ClusterView | None
) -> list[list[BrokerId]]:
    """Return the order in which the running brokers of a node stop. The brokers of one wave stop at the same time.

    The controller stops last, because it elects the new leaders for the others. If other nodes run, brokers stop one
    after the other, and their leaders move to these nodes. Without other nodes, leaders would only move from one broker
    that stops soon to the next, so all stop at once. `view` is None if no broker answers.
    """
    controller = None if view is None else view.controller
    last = [each for each in running if each == controller]
    others = [each for each in running if each != controller]
    if view is not None and view.brokers.keys() - set(node):
        return [[each] for each in others + last]
    return [wave for wave in (others, last) if wave]


async def wait_at_most(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        pass


def local_address(endpoint: Endpoint) -> str:
    """
    >>> local_address(Endpoint(listener="PLAINTEXT", host="", port=9092))
    'localhost:9092'
    """
    if endpoint.host not in WILDCARD_HOSTS:
        return endpoint.address
    # A certificate names the host that brokers advertise.
    host = socket.getfqdn() if endpoint.protocol.has_tls else "localhost"
    return replace(endpoint, host=host).address
