"""Starts Spark sessions that can use `format("barnabas")`.

    spark = barnabas.spark.session()                              # this machine, all cores
    spark = barnabas.spark.session("spark://master:7077")         # any other master
    spark = barnabas.spark.session("sc://server:15002")           # a Spark Connect server
    spark.read.format("barnabas").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders")

Compared with `SparkSession.builder`, the session

- runs the workers with the Python of this process, and finds Java (java/find.py),
- starts fast (class_archive.py), logs little, and shows progress in the terminal (progress.py),
- sends this package to the workers of a remote master (shipping.py),
- has as many shuffle partitions as cores, and no web UI (local master only),
- can have a persistent catalog (catalog.py).

Settings in `config` override the defaults. Java options in it are added to the default ones.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.errors import BarnabasError, ConfigError
from barnabas.java.find import Java, find_java
from barnabas.spark.cache import cache_directory, digest, write_if_missing
from barnabas.spark.catalog import catalog_java_options, catalog_settings, lock_catalog
from barnabas.spark.class_archive import GC_OPTION, class_archive
from barnabas.spark.connect import connect_session, is_remote
from barnabas.spark.installation import spark_home
from barnabas.spark.progress import show_progress
from barnabas.spark.query_log import silence_query_logger
from barnabas.spark.run_state import state_directory
from barnabas.spark.shipping import missing_modules, package_zip
from barnabas.spark.start_scripts import launcher_home, worker_python

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
MASTERS = re.compile(r"local|local\[.+\]|local-cluster\[.+\]|yarn|(spark|k8s)://.+")
GATEWAY_PORT = "PYSPARK_GATEWAY_PORT"
"""Environment variable that spark-submit sets."""
PREPARED_APPLICATIONS: set[str] = set()
BOOTSTRAP_SERVERS = "spark.barnabas.bootstrap.servers"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
SECRET_NAMES = "secret|password|token|access[.]?key|jaas|keystore[.]key|ssl[.]key"
REDACTED = f"(?i){SECRET_NAMES}"
"""Names of options whose values Spark does not show: Spark's default, and Kafka's settings with secrets."""
REDACTED_TEXT = rf'(?i)key: "[^"]*(?:{SECRET_NAMES})[^"]*"\s+value: "[^"\\]*+(?:\\.[^"\\]*+)*+"'
"""The same options in the text of a plan of Spark Connect, which Spark stores as the description of a job."""
FAST_COMPILER = "-XX:TieredStopAtLevel=1"
STACK_SIZE = "-Xss16m"
"""Spark matches the text of an exception with a regular expression that takes 500 bytes of stack for each character.
When a stream that is busy in foreachBatch is stopped, this text has about 9,000."""
DATA_SOURCES = "org.apache.spark.sql.execution.datasources"
CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing"
STREAM_VARIABLES = (
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_LOCAL_DIRS",
    "SPARK_PYTHON_RUNTIME",
)
"""Each start of a stream sets these variables in the environment of its source."""

LOG4J_CONFIG = """rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %m%n
# The caller gets the error of a failed job as an exception. These loggers would print it twice more.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.scheduler.name = org.apache.spark.scheduler
logger.scheduler.level = fatal
logger.executor.name = org.apache.spark.executor
logger.executor.level = fatal
logger.execution.name = org.apache.spark.sql.execution
logger.execution.level = fatal
logger.util.name = org.apache.spark.util
logger.util.level = fatal
logger.python.name = org.apache.spark.api.python.PythonRunner
logger.python.level = fatal
"""


class NoSpark(BarnabasError):
    """Spark could not be started, or its workers cannot run this package."""


def session(
    master: str | None = None,
    *,
    app_name: str = "barnabas",
    bootstrap_servers: str | None = None,
    config: Mapping[str, str] | None = None,
    catalog: str | Path | None = None,
    python: str | None = None,
    progress: bool = True,
    archive: bool = True,
    short: bool = False,
) -> SparkSession:
    """Start Spark, or return the running session, to which only `config` is applied.

    For a Spark Connect server (`sc://host:port`), only `app_name`, `bootstrap_servers`, `config` and `progress` are
    used (connect.py).

    `bootstrap_servers` is stored in the setting spark.barnabas.bootstrap.servers. `catalog` is a directory for tables
    that outlive the session. `python` is the Python of the workers; by default that of this process, or PYSPARK_PYTHON
    for a remote master. `archive=False` does not use the class-data archive. `short` is for jobs of a few
    seconds: Java uses only its fast compiler, and Spark does not search for other Python data sources.

    Raises ConfigError (also if the running session has another master), NoJava, NoSpark and RemoteUnreachable.
    """
    from pyspark.sql import SparkSession

    if master is not None and is_remote(master):
        servers = {} if bootstrap_servers is None else {BOOTSTRAP_SERVERS: bootstrap_servers}
        settings = {**servers, **(config or {})}
        return connect_session(master, app_name, settings, progress=progress)
    running = SparkSession.getActiveSession() or session_of_other_thread()
    if running is not None:
        spark = reuse_session(running, master, config)
    elif GATEWAY_PORT in os.environ:
        spark = session_in_spark_submit(master, app_name, config)
    else:
        settings = {"spark.app.name": app_name}
        if bootstrap_servers is not None:
            settings[BOOTSTRAP_SERVERS] = bootstrap_servers
        java_options = [FAST_COMPILER] if short and is_local(master or LOCAL) else []
        if catalog is not None:
            lock_catalog(Path(catalog))
            settings |= catalog_settings(Path(catalog))
            java_options.append(catalog_java_options(Path(catalog)))
        java = find_java("Spark")
        if archive and is_local(master or LOCAL):
            classes = class_archive(java, spark_home(), cache_directory())
            java_options.append(classes.options)
        spark = open_session(
            java=java,
            master=master or LOCAL,
            settings={**settings, **(config or {})},
            java_options=" ".join(filter(None, java_options)),
            python=python,
        )
    # If other code started the session, its workers may use any Python.
    uses_own_python = running is None and GATEWAY_PORT not in os.environ and python is None
    prepare_session(
        spark,
        progress=progress,
        reports=not short,
        skip_source_lookup=short,
        uses_own_python=uses_own_python,
    )
    return spark


def session_of_other_thread() -> SparkSession | None:
    """Return another thread's running session, or None. Make it active in this thread, so that Spark finds sinks."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        running = SparkSession.active()
    except PySparkRuntimeError:
        return None
    if running.sparkContext._jsc is None:
        return None  # its context was stopped
    # PySpark has no API to set the active session, but createDataFrame sets it.
    running.createDataFrame([], "none int")
    return running


def prepare_session(
    spark: SparkSession,
    *,
    progress: bool,
    reports: bool,
    skip_source_lookup: bool,
    uses_own_python: bool,
) -> None:
    """Make the data source available in the session, once per Spark application. Stops the session after an error."""
    context = spark.sparkContext
    if context.applicationId in PREPARED_APPLICATIONS:
        return
    hide_lost_connections(context)
    try:
        # Local workers with the Python of this process find the package themselves.
        uses_own_python = uses_own_python or context.pythonExec == sys.executable
        if not (is_local(context.master) and uses_own_python):
            ship_package(spark)
        if skip_source_lookup:
            disable_source_lookup(spark)
        register_source(spark)
    except BaseException:
        spark.stop()
        raise
    PREPARED_APPLICATIONS.add(context.applicationId)
    if reports:
        from barnabas.spark.stream_reports import report_streams

        report_streams(spark, state_directory("streams"))
    if progress:
        show_progress(spark)


def hide_lost_connections(context: SparkContext) -> None:
    """Keep PySpark's server for accumulators from printing a traceback when Java closes its connection.

    Nothing is lost: Java opens a new connection for the next values.
    """
    server = getattr(context, "_accumulatorServer", None)
    if server is None:
        return
    report = server.handle_error

    def report_other_errors(*request: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            report(*request)

    server.handle_error = report_other_errors


def session_in_spark_submit(
    master: str | None, app_name: str, config: Mapping[str, str] | None
) -> SparkSession:
    """Start the session in a program that spark-submit started. spark-submit has started Java and chosen the master."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    return builder.config(map=dict(config or {})).getOrCreate()


def reuse_session(
    running: SparkSession, master: str | None, config: Mapping[str, str] | None
) -> SparkSession:
    """Apply `config` to the session. Raises ConfigError for another master or a setting that cannot be changed."""
    current = running.sparkContext.master
    if master not in (None, current):
        raise ConfigError("master", f"this process has a session on {current}; stop it first")
    for key, value in (config or {}).items():
        if running.conf.isModifiable(key):
            running.conf.set(key, value)
        elif running.conf.get(key, None) != value:
            raise ConfigError(key, "can be set only before Spark starts; stop the session first")
    return running


def open_session(
    *,
    java: Java,
    master: str,
    settings: Mapping[str, str],
    java_options: str = "",
    python: str | None = None,
) -> SparkSession:
    """Start Java and Spark with `default_settings`, overridden by `settings`. Raises NoSpark."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    check_master(master)
    cache = cache_directory()
    defaults = default_settings(master, write_log4j_file(cache), java_options)
    merged = {**defaults, **settings}
    if JAVA_OPTIONS in settings:
        merged[JAVA_OPTIONS] = f"{defaults[JAVA_OPTIONS]} {settings[JAVA_OPTIONS]}"
    builder = SparkSession.builder.master(master).config(map=merged)
    silence_query_logger()
    with environment(
        JAVA_HOME=str(launcher_home(java, cache)),
        PYSPARK_PYTHON=worker_python(python, os.environ, cache, local=is_local(master)),
        PYSPARK_DRIVER_PYTHON=sys.executable,
    ):
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:
            if error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            raise NoSpark(
                f"Java {java.version} in {java.home} ({java.origin}) ended before Spark had started; "
                "its output is above"
            ) from None
        except Py4JJavaError as error:
            # Spark stops the context if the master does not respond within a minute.
            if "stopped SparkContext" not in str(error):
                raise
            hint = "check that a Spark master runs there and can reach this machine"
            raise NoSpark(f"{master} did not accept the session; {hint}") from None


def check_master(master: str) -> None:
    """Raise ConfigError for an invalid master. Spark would fail after seconds, with a long stack trace."""
    if not MASTERS.fullmatch(master):
        hint = "write local[4], spark://host:7077, yarn, k8s://https://host:port or sc://host:port"
        raise ConfigError("master", f"{master!r} is not a master; {hint}")


def default_settings(master: str, log4j_file: Path, java_options: str) -> dict[str, str]:
    """Return the default settings. Only a local session is tuned for this machine."""
    shared = {
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.regex": REDACTED,
        "spark.redaction.string.regex": REDACTED_TEXT,
        JAVA_OPTIONS: f"{STACK_SIZE} -Dlog4j2.configurationFile=file:{log4j_file} {java_options}".strip(),
    }
    if not is_local(master):
        return shared
    cores = str(local_cores(master))
    return shared | {
        JAVA_OPTIONS: f"{GC_OPTION} {shared[JAVA_OPTIONS]}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": cores,
        "spark.default.parallelism": cores,
        # Makes half as many file system calls as the default, and is as atomic on a local disk.
        "spark.sql.streaming.checkpointFileManagerClass": f"{CHECKPOINTS}.FileSystemBasedCheckpointFileManager",
    }


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def local_cores(master: str) -> int:
    """Return the number of cores of a local master: 2 for local[2], all usable cores for local[*]."""
    inner = master.removeprefix("local").strip("[]").split(",")[0]
    if not inner:
        return 1
    if inner == "*":
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    if not inner.isdigit() or int(inner) < 1:
        raise ConfigError("master", f"{master!r} is not a master; write local[*] or local[4]")
    return int(inner)


def write_log4j_file(cache: Path) -> Path:
    name = f"log4j2-{digest(LOG4J_CONFIG)}.properties"
    return write_if_missing(cache / name, LOG4J_CONFIG.encode())


@contextmanager
def environment(**changes: str) -> Iterator[None]:
    """Set environment variables during the block. Child processes started later must not inherit them."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# ---- this package on the workers ------------------------------------------------------------------------------


def register_source(spark: SparkSession) -> None:
    """Register the data source.

    Spark could discover the source. Remote workers would then run it with the driver's Python path and without the
    shipped package. Discovery also starts two more processes.

    All streams share the environment of the source, a Java HashMap that Spark changes without a lock. Two streams that
    start together could add the same variable twice; all tasks then fail with OptionalDataException. So the variables
    are there from the beginning, and streams only replace their values.
    """
    from pyspark_barnabas import DefaultSource

    context = spark.sparkContext
    environment = context.environment
    context.environment = {**dict.fromkeys(STREAM_VARIABLES, ""), **environment}
    try:
        spark.dataSource.register(DefaultSource)
    finally:
        context.environment = environment


def share_source(spark: SparkSession) -> None:
    """Make the registered source available in all sessions of this Spark application, also those of Spark Connect."""
    source = spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource("barnabas")
    set_static_sources(spark, {"barnabas": source})


def disable_source_lookup(spark: SparkSession) -> None:
    """Stop Spark from searching for installed data sources in two Python processes, which takes a second.

    This uses Spark internals. If a later version of Spark changes them, the search runs after all.
    """
    with suppress(Exception):
        set_static_sources(spark, {})


def set_static_sources(spark: SparkSession, sources: dict[str, Any]) -> None:
    jvm: Any = spark.sparkContext._jvm
    manager = getattr(getattr(jvm, f"{DATA_SOURCES}.DataSourceManager$"), "MODULE$")
    scala_map = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(sources)
    getattr(manager, "dataSourceBuilders_$eq")(jvm.scala.Some(scala_map))


def ship_package(spark: SparkSession) -> None:
    """Send the package to every worker and check its dependencies there. Raises NoSpark."""
    from py4j.protocol import Py4JJavaError

    context = spark.sparkContext
    context.addPyFile(str(package_zip(cache_directory())))
    checks = context.parallelize([0, 1], 2).mapPartitions(lambda _: [missing_modules()])
    try:
        found = checks.collect()
    except Py4JJavaError as error:
        raise explain_python_error(context, str(error)) or error from None
    missing = sorted({name for names in found for name in names})
    if missing:
        raise NoSpark(
            f"the workers of {context.master} cannot import {', '.join(missing)}; "
            f"there, run: {shlex.quote(context.pythonExec)} -m pip install {' '.join(missing)}; "
            "or set PYSPARK_PYTHON to a Python that has them"
        )


def explain_python_error(context: SparkContext, report: str) -> NoSpark | None:
    """Return a short error if the workers' Python is missing or has another version, else None."""
    hint = "set python= or PYSPARK_PYTHON to a Python with the dependencies of barnabas[spark]"
    problem = f"the workers of {context.master} cannot use the Python {context.pythonExec}"
    if "Cannot run program" in report:
        return NoSpark(f"{problem}: it does not exist; {hint}")
    if found := re.search(r"PYTHON_VERSION_MISMATCH\][^\n]*?different version: (\S+)", report):
        current = ".".join(map(str, sys.version_info[:2]))
        versions = f"it is version {found[1]}, but this process runs {current}"
        return NoSpark(f"{problem}: {versions}; {hint}")
    return None
