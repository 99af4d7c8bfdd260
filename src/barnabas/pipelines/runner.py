"""Runs a pipeline: once, or again whenever its topics have new records, with restarts after failures.

    PipelineSession   server (if none is given), client, and the runs
    run_pipeline      the loop: runs, waits for new records, backs off after failures, stops on request

Spark runs in a thread. The main thread shows progress and waits for signals.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.client.cluster import Cluster
from barnabas.client.offsets import latest_offsets
from barnabas.errors import BarnabasError, ConfigError
from barnabas.model import TopicPartition
from barnabas.pipelines.failure import explain_flow_failure, explain_run_failure, first_line
from barnabas.pipelines.graph import (
    PipelineGraph,
    check_earlier_flows,
    check_flows,
    check_full_refresh,
    check_sink_topics,
    topics_used,
)
from barnabas.pipelines.progress import FlowProgress, RunProgress
from barnabas.pipelines.server_process import ServerFailed, ServerProcess, check_connect
from barnabas.pipelines.spec import PipelineSpec, storage_path, storage_uri
from barnabas.pipelines.storage import (
    check_owner,
    claim_storage,
    flows_with_checkpoints,
    forget_topic_ids,
    topics_with_ids,
)
from barnabas.retry import Backoff
from barnabas.security.client_settings import PLAINTEXT, ClientSecurity
from barnabas.spark.client_settings import cluster_options
from barnabas.spark.connect import RemoteUnreachable, check_remote, uses_tls
from barnabas.spark.installation import spark_home

if TYPE_CHECKING:
    from barnabas.pipelines.client import PipelineClient

POLL_S = 0.1
GRACE_S = 10.0
"""How long a run may take to finish after a request to stop."""
RESTART_S = (1.0, 60.0)
"""First and longest pause before a restart."""
OTHER_SOURCES_S = 10.0
"""Pause between two runs of a pipeline that reads more than topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    spec_path: Path
    spec: PipelineSpec
    servers: str
    log: Path
    security: ClientSecurity = PLAINTEXT
    master: str | None = None
    remote: str | None = None
    full_refresh: tuple[str, ...] = ()
    dry: bool = False
    timeout_s: float = 30.0
    interval_s: float = 1.0

    @property
    def directory(self) -> Path:
        return self.spec_path.parent

    def connect(self) -> Cluster:
        return Cluster(self.servers, timeout_s=self.timeout_s, security=self.security)

    @property
    def storage(self) -> str:
        return storage_uri(self.spec.storage, self.directory)

    @property
    def local_storage(self) -> Path | None:
        path = storage_path(self.storage)
        return None if path is None else Path(path)


class Observer(Protocol):
    """Receives changes. Both methods are called in threads of Spark."""

    def flow_changed(self, flow: FlowProgress) -> None: ...

    def run_changed(self, state: str) -> None: ...


class Stop(Protocol):
    """A request to stop, such as a signal."""

    @property
    def is_requested(self) -> bool: ...

    @property
    def is_urgent(self) -> bool: ...

    def wait(self, seconds: float) -> bool:
        """Wait, and return whether a stop is requested."""


@dataclass(slots=True)
class PipelineSession:
    """Spark for the runs of one pipeline."""

    options: RunOptions
    observer: Observer
    progress: RunProgress = field(default_factory=RunProgress)
    graph: PipelineGraph | None = None
    """The graph of the last run."""
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    """End offsets of the topics before the last run. Records that arrived during the run start the next one."""
    used_topics: set[str] = field(default_factory=set)
    """Topics that the runs have read or written."""
    server: ServerProcess | None = None
    client: PipelineClient | None = None

    def start(self) -> None:
        """Start the server, or find the remote one, and connect. Raises BarnabasError."""
        options = self.options
        if options.remote is None:
            check_connect(spark_home())
            self.server = ServerProcess(self.server_arguments(), options.log)
        # Imported while the server starts: gRPC and pandas take a second.
        from pyspark.errors import PySparkException

        from barnabas.pipelines.client import PipelineClient

        if self.server is not None:
            address = self.server.wait_ready()
        else:
            assert options.remote is not None
            check_remote(options.remote, "--remote")
            address = options.remote
        try:
            self.client = PipelineClient(
                address,
                cluster_options(options.connect()),
                self.on_report,
                has_source=self.server is not None,
                may_send_secrets=options.remote is None or uses_tls(options.remote),
            )
        except PySparkException as error:
            why = first_line(str(error))
            if options.remote is not None:
                problem = "no session on the Spark Connect server"
                raise RemoteUnreachable("--remote", problem, why) from None
            raise ServerFailed(
                f"no session on the Spark Connect server ({why}); its output is in {options.log}"
            ) from None

    def server_arguments(self) -> dict[str, Any]:
        options = self.options
        # A dry run must not wait for the catalog of a running pipeline.
        has_catalog = options.local_storage is not None and not options.dry
        catalog = (
            options.local_storage / "catalog" if has_catalog and options.local_storage else None
        )
        return {
            "master": options.master,
            "app_name": f"barnabas pipeline {options.spec.name}",
            "bootstrap_servers": options.servers,
            "catalog": None if catalog is None else str(catalog),
            "config": dict(options.spec.configuration),
            "short": options.dry,
        }

    def claim_storage(self) -> None:
        """Raise ConfigError if another pipeline owns the storage. A dry run does not claim it."""
        options = self.options
        if options.local_storage is not None:
            claim = check_owner if options.dry else claim_storage
            claim(options.local_storage, options.spec.name)

    def close(self) -> None:
        if self.client is not None:
            self.client.close()
        if self.server is not None:
            self.server.stop()
        self.server = self.client = None

    # ---- runs ------------------------------------------------------------------------------------------------------

    def run(self, full_refresh: tuple[str, ...]) -> None:
        """Load the files, check the graph and run it. Raises BarnabasError."""
        options, client = self.options, self.client
        assert client is not None
        from barnabas.pipelines.client import run_error

        self.progress.begin_run()
        topics = self.topics()
        try:
            # A remote server does not have this directory, and a dry run stores nothing.
            is_own = options.remote is None and not options.dry
            storage = options.local_storage if is_own else None
            defined = client.define(
                options.spec, options.directory, topics, self.earlier_topics(storage), storage
            )
            self.graph = defined.graph
            self.check(defined.graph, topics, full_refresh)
            self.used_topics |= topics_used(self.graph)
            self.ends = self.end_offsets()
            if storage is not None:
                forget_topic_ids(storage, full_refresh, options.spec.namespace)
            failures: dict[str, BarnabasError] = {}
            try:
                events = client.run(
                    defined.id,
                    storage=options.storage,
                    full_refresh=full_refresh,
                    dry=options.dry,
                )
                for message in events:
                    failed = explain_flow_failure(message, defined.graph, topics)
                    if failed is not None:
                        failures.setdefault(*failed)
                        if changed := self.progress.fail(failed[0], str(failed[1])):
                            self.observer.flow_changed(changed)
                    elif changed := self.progress.apply_event(message):
                        self.observer.flow_changed(changed)
            except Exception as error:  # noqa: BLE001 - errors of gRPC and Spark
                if failures:
                    raise next(iter(failures.values())) from None
                flow, explained = explain_run_failure(str(error), defined.graph, topics)
                if flow is not None and (changed := self.progress.fail(flow, str(explained))):
                    self.observer.flow_changed(changed)
                raise explained from None
            finally:
                for each in self.progress.completed_flows():
                    self.observer.flow_changed(each)
                client.drop(defined.id)
            if (failure := self.progress.first_failure(failures)) is not None:
                raise failure
        except BarnabasError:
            self.progress.state = "FAILED"
            self.observer.run_changed("FAILED")
            raise
        except Exception as error:  # noqa: BLE001 - the connection to the server failed
            self.progress.state = "FAILED"
            raise run_error(error) from None
        self.progress.state = "COMPLETED"
        self.observer.run_changed("COMPLETED")

    def check(self, graph: PipelineGraph, topics: list[str], full_refresh: tuple[str, ...]) -> None:
        check_flows(graph)
        check_sink_topics(graph, topics)
        check_full_refresh(graph, full_refresh)
        storage = self.options.local_storage
        if storage is not None:
            earlier = flows_with_checkpoints(storage, graph.namespace)
            check_earlier_flows(graph, earlier, full_refresh)

    def on_report(self, report: Mapping[str, Any]) -> None:
        self.observer.flow_changed(self.progress.apply_report(report))

    # ---- topics ----------------------------------------------------------------------------------------------------

    def earlier_topics(self, storage: Path | None) -> set[str]:
        """Return the topics of earlier calls of `run`, and those whose ids earlier runs stored in `storage`."""
        return self.used_topics | (set() if storage is None else topics_with_ids(storage))

    def topics(self) -> list[str]:
        with self.options.connect() as cluster:
            return sorted(cluster.refresh(None).topics)

    def end_offsets(self) -> dict[TopicPartition, int]:
        """Return the end offsets of the topics that the last run read."""
        names = sorted(self.graph.topics_read) if self.graph is not None else []
        if not names:
            return {}
        with self.options.connect() as cluster:
            found = cluster.refresh(names).topics.values()
            partitions = [
                TopicPartition(topic.name, each.partition)
                for topic in found
                for each in topic.partitions
            ]
            return latest_offsets(cluster, partitions)


class BackgroundCall:
    """A function that runs in a daemon thread."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.error: BaseException | None = None
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.call, args=(work,), daemon=True)
        self.thread.start()

    def call(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self.error = error
        finally:
            self.done.set()


class Stopped(BarnabasError):
    """The run was stopped before its end."""


def wait_for(
    call: BackgroundCall, session: PipelineSession, stop: Stop, tick: Callable[[], None]
) -> None:
    """Wait for the call, and raise its error. Raises Stopped if it does not end within GRACE_S after a stop."""
    deadline: float | None = None
    while not call.done.wait(POLL_S):
        tick()
        if stop.is_requested:
            deadline = deadline or time.monotonic() + GRACE_S
            # Nothing is lost if Spark is still starting.
            if session.client is None or stop.is_urgent or time.monotonic() > deadline:
                raise Stopped("stopped")
        elif session.client is not None and session.server and session.server.has_ended:
            raise ServerFailed(
                "the JVM of Spark ended: it was killed, or the machine ran out of memory; "
                f"its output is in {session.options.log}"
            )
    tick()
    if call.error is not None:
        raise call.error


def run_pipeline(
    session: PipelineSession,
    stop: Stop,
    tick: Callable[[], None],
    *,
    continuous: bool,
    on_restart: Callable[[BarnabasError, float], None],
) -> None:
    """Run the pipeline, and close the session. Raises Stopped if a stop interrupted a run."""
    backoff = Backoff(*RESTART_S, random=Random())
    has_succeeded = False
    full_refresh = session.options.full_refresh
    try:
        while True:
            try:
                if session.client is None:
                    wait_for(BackgroundCall(session.start), session, stop, tick)
                # A full refresh leaves out all other tables, so a second run follows.
                for refresh in [full_refresh, ()] if full_refresh else [()]:
                    if not stop.is_requested:
                        call = BackgroundCall(lambda names=refresh: session.run(names))  # type: ignore[misc]
                        wait_for(call, session, stop, tick)
                        full_refresh = ()  # not again if the second run fails
                has_succeeded = True
                backoff.reset()
                if not continuous or stop.is_requested:
                    return
                if not wait_for_records(session, stop, tick):
                    return
            except BarnabasError as error:
                if isinstance(error, Stopped) or not continuous:
                    raise
                if isinstance(error, ConfigError) and not has_succeeded:
                    raise
                # After a restart, a remote server does not know the session of this client.
                own = session.server
                if own is None or own.has_ended or session.client is None:
                    session.close()
                on_restart(error, backoff.delay_s)
                if stop.wait(backoff.next_s()):
                    return
    finally:
        session.close()


def wait_for_records(session: PipelineSession, stop: Stop, tick: Callable[[], None]) -> bool:
    """Wait until the topics of the pipeline have new records. Returns False if a stop is requested."""
    graph = session.graph
    if graph is None or graph.has_other_sources or not graph.topics_read:
        return not stop.wait(OTHER_SOURCES_S)
    while not stop.wait(session.options.interval_s):
        tick()
        if session.end_offsets() != session.ends:
            return True
    return False
