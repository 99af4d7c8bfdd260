"""Brokers of one cluster around a ZooKeeper ensemble, each a process of its own, children of this one.

    <data>/broker-<id>.properties    what it was told            <data>/broker-<id>.log    what it says
    <data>/broker-<id>/              its logs                    <data>/zookeeper/         the server, if it is ours

They end with their parent, even if that is killed. A broker that ended because its event loop was stuck is restarted.
If another one ends by itself, a line reports it, and the others go on.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from barnabas.cli.terminal.output import note
from barnabas.cluster import FIRST_BROKER_ID, bracketed, check_shared, local_settings
from barnabas.config import BrokerConfig
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.world.held_port import HeldPort
from barnabas.world.watchdog import STUCK_EXIT_CODE
from barnabas.zookeeper_server import ZooKeeperServers

READY_SECONDS = 60.0
LOOK_SECONDS = 0.05
TELL_SECONDS = 1.0
ZOOKEEPER_LOOK_SECONDS = 0.5
STOP_SECONDS = 60.0
RESTARTS_MAX = 5
RESTARTS_PERIOD_SECONDS = 600.0
FIRST_BACK_OFF_SECONDS = 1.0
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class BrokerProcesses:
    """`await start()`, use `bootstrap_servers`, `await stop()`. To be started from the main thread."""

    def __init__(
        self,
        data: Path,
        zookeeper: str | None,
        *,
        brokers: int,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Without an ensemble to use, a ZooKeeper server is started, too."""
        check_shared(brokers, settings or {})
        self.data = data
        self.zookeeper = zookeeper
        self.servers = ZooKeeperServers(data / "zookeeper") if zookeeper is None else None
        self.host = host
        self.port = port
        self.settings = dict(settings or {})
        self.ids: Collection[int] = range(FIRST_BROKER_ID, FIRST_BROKER_ID + brokers)
        # A wrong setting is told before anything is started.
        config, self.warnings = BrokerConfig.load(self.properties(FIRST_BROKER_ID, port))
        self.session_timeout_s = config.zookeeper_session_timeout_ms / 1000
        self.ports: dict[int, HeldPort] = {}
        self.running: dict[int, Process] = {}
        self.watching: list[asyncio.Task[None]] = []

    @property
    def registry_option(self) -> str:
        return f"--zookeeper {self.zookeeper}"

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{bracketed(self.host)}:{held.port}" for held in self.ports.values())

    def properties(self, broker_id: int, port: int) -> dict[str, str]:
        return {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{bracketed(self.host)}:{port}",
            "log.dirs": str(self.data / f"broker-{broker_id}"),
            **local_settings(len(self.ids)),
            **({"zookeeper.connect": self.zookeeper} if self.zookeeper else {}),
            **self.settings,
        }

    def file(self, broker_id: int, kind: str) -> Path:
        return self.data / f"broker-{broker_id}.{kind}"

    async def start(self) -> None:
        """Returns when every broker's metadata shows all brokers and a controller."""
        try:
            self.data.mkdir(parents=True, exist_ok=True)
            if self.servers is not None:
                await started(self.servers)
                self.zookeeper = self.servers.connect_string
            for number, broker_id in enumerate(self.ids):
                held = HeldPort(self.host, self.port + number if self.port else 0)
                self.ports[broker_id] = held
            for broker_id in self.ids:
                await self.start_one(broker_id)
            await self.wait_until_ready()
        except BaseException:
            await self.stop()
            raise
        for broker_id in self.running:
            self.watching.append(asyncio.create_task(self.watch(broker_id)))
        if self.servers is not None:
            self.watching.append(asyncio.create_task(self.watch_zookeeper(self.servers)))

    async def start_one(self, broker_id: int) -> None:
        properties = self.properties(broker_id, self.ports[broker_id].port)
        config = self.file(broker_id, "properties")
        config.write_text(properties_text(properties), encoding="ascii")
        with self.file(broker_id, "log").open("ab") as log:
            self.running[broker_id] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "barnabas.cli.main", "broker", str(config)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us, and we stop them in order
                preexec_fn=die_with(os.getpid()),
            )

    async def wait_until_ready(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READY_SECONDS
        tell_at = loop.time() + TELL_SECONDS
        told: set[int] = set()
        while not await asyncio.to_thread(self.all_see_all):
            for broker_id, process in self.running.items():
                if process.returncode is not None:
                    raise self.did_not_start(broker_id, process.returncode)
            if loop.time() > deadline:
                why = f"the brokers did not find each other within {READY_SECONDS:g} s; see {self.data}/broker-*.log"
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, why)
            if loop.time() > tell_at:
                tell_at += TELL_SECONDS
                self.tell_of_waiting(told)
            await asyncio.sleep(LOOK_SECONDS)

    def tell_of_waiting(self, told: set[int]) -> None:
        """A broker that waits for something says so in its log, and nobody looks there yet."""
        for broker_id in self.ids:
            words = self.last_words(broker_id)
            if broker_id not in told and " WARNING " in words:
                told.add(broker_id)
                note(f"still starting: broker {broker_id}: {words}")

    def all_see_all(self) -> bool:
        from barnabas.client.cluster import Cluster

        for held in self.ports.values():
            try:
                with Cluster(f"{bracketed(self.host)}:{held.port}", timeout_s=5.0) as cluster:
                    view = cluster.refresh([])
            except ApiError:
                return False
            if not set(self.ids) <= view.brokers.keys() or view.controller not in view.brokers:
                return False
        return True

    def controller(self) -> int | None:
        from barnabas.client.cluster import Cluster

        try:
            with Cluster(self.bootstrap_servers, timeout_s=2.0) as cluster:
                return cluster.refresh([]).controller
        except (ApiError, ConfigError):  # none of them answers, or none was started
            return None

    def did_not_start(self, broker_id: int, code: int) -> ApiError:
        from barnabas.cli.terminal.failure import Hinted

        said = self.file(broker_id, "log").read_text(errors="backslashreplace").splitlines()
        error = ApiError(ErrorCode.BROKER_NOT_AVAILABLE)
        why = f"broker {broker_id} {ending(code)}: {reason(said)}"
        return Hinted(error, why, f"see {self.file(broker_id, 'log')}")

    def last_words(self, broker_id: int) -> str:
        path = self.file(broker_id, "log")
        lines = path.read_text(errors="backslashreplace").splitlines()
        return f"{lines[-1] if lines else 'it said nothing'} (see {path})"

    async def watch(self, broker_id: int) -> None:
        code = await self.running[broker_id].wait()
        restarts = Restarts()
        while code == STUCK_EXIT_CODE:
            delay_s = restarts.next_delay(asyncio.get_running_loop().time())
            note(stuck(broker_id, delay_s, self.file(broker_id, "log")))
            if delay_s is None:
                break
            await asyncio.sleep(delay_s)
            try:
                await self.start_one(broker_id)
            except OSError as error:
                note(f"cannot restart broker {broker_id}: {error}")
                break
            code = await self.running[broker_id].wait()
        config = self.file(broker_id, "properties")
        again = f"`barnabas broker {config}` starts it again"
        # One that ends in order takes its leave; of one that is killed only its silence tells.
        within = f"within {self.session_timeout_s:g} s (zookeeper.session.timeout.ms)"
        others = "the others go on" if code == 0 else f"the others notice {within} and go on"
        note(f"broker {broker_id} {ending(code)}; {others}.", f"  {again}")

    async def watch_zookeeper(self, servers: ZooKeeperServers) -> None:
        while True:
            for node, code in servers.ended().items():
                where = f"--data {servers.data} --port {servers.ports[node - 1]}"
                note(
                    f"ZooKeeper {ending(code)}; the brokers go on with what they know, but no topic and no leader "
                    f"can change without it. `barnabas zookeeper {where}` starts it again "
                    f"(see {servers.log_path(node)})"
                )
            await asyncio.sleep(ZOOKEEPER_LOOK_SECONDS)

    def kill(self, _exit_code: int) -> None:
        for process in self.running.values():
            if process.returncode is None:
                process.kill()

    async def stop(self) -> None:
        """The controller last: it has work with each of the others that leaves."""
        for task in self.watching:
            task.cancel()
        await asyncio.gather(
            *self.watching, return_exceptions=True
        )  # one may be restarting a broker
        last = await asyncio.to_thread(self.controller)
        await end([process for broker, process in self.running.items() if broker != last])
        await end([process for broker, process in self.running.items() if broker == last])
        for held in self.ports.values():
            held.release()
        self.running.clear()
        self.ports.clear()
        if self.servers is not None:
            await asyncio.to_thread(self.servers.stop)


class Restarts:
    """Restarts of one broker: each waits twice as long as the one before, and their number in a period is bounded."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def next_delay(self, now: float) -> float | None:
        """Seconds to wait before a restart, which is counted; None: do not restart."""
        self.times = [at for at in self.times if now - at < RESTARTS_PERIOD_SECONDS]
        if len(self.times) >= RESTARTS_MAX:
            return None
        self.times.append(now)
        return FIRST_BACK_OFF_SECONDS * 2.0 ** (len(self.times) - 1)


def stuck(broker_id: int, delay_s: float | None, log: Path) -> str:
    """
    >>> stuck(2, 1.0, Path("broker-2.log"))
    'broker 2 was stuck and ended itself (exit code 75, stack in broker-2.log); restarting it in 1 s'
    """
    what = f"broker {broker_id} was stuck and ended itself (exit code {STUCK_EXIT_CODE}, stack in {log})"
    if delay_s is not None:
        return f"{what}; restarting it in {delay_s:g} s"
    minutes = RESTARTS_PERIOD_SECONDS / 60
    return f"{what}; not restarting it: it was restarted {RESTARTS_MAX} times in {minutes:g} min"


async def started(servers: ZooKeeperServers) -> None:
    starting = asyncio.ensure_future(asyncio.to_thread(servers.start))
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await starting  # a thread cannot be broken off
        raise


async def end(processes: list[Process]) -> None:
    """Ask them to stop, and do not ask again."""
    for process in processes:
        if process.returncode is None:
            process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            for process in processes:
                await process.wait()
    except TimeoutError:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()


def die_with(parent: int) -> Callable[[], None]:
    """What a child does before it becomes a broker: ask the kernel to be killed when this process ends."""

    def ask() -> None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended meanwhile
            os._exit(1)

    return ask


def ending(code: int) -> str:
    """
    >>> ending(-9), ending(1)
    ('was ended by SIGKILL', 'ended with exit code 1')
    """
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def reason(said: Sequence[str]) -> str:
    """
    >>> reason(["... INFO starting", "error: no room", "hint:  make some"])
    'no room'
    """
    errors = [line.removeprefix("error: ") for line in said[-2:] if line.startswith("error: ")]
    return errors[-1] if errors else said[-1] if said else "it said nothing"


def properties_text(properties: Mapping[str, str]) -> str:
    """As Java reads it: a backslash is doubled, what is not ASCII is escaped."""
    return "".join(f"{key}={escaped(value)}\n" for key, value in properties.items())


def escaped(value: str) -> str:
    utf16 = value.replace("\\", "\\\\").encode("utf-16-be")
    units = [int.from_bytes(utf16[at : at + 2]) for at in range(0, len(utf16), 2)]
    return "".join(chr(unit) if unit < 0x7F else f"\\u{unit:04x}" for unit in units)
