"""The Spark session everything of ours runs in.

    spark = barnabas.spark.session()                              # this machine, all cores
    spark = barnabas.spark.session("spark://master:7077")         # any other master
    spark.read.format("barnabas").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders")

What it adds to `SparkSession.builder`: the Python of this process for the workers, a Java that is found, quiet logs, a
quick start (class_archive.py), our package on the workers of a remote master (shipping.py), shuffles of this machine's
size, no web pages, a line that shows progress (progress.py), and a catalog that lasts if a directory is given.

Whatever is set in `config` wins over what is set here.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.errors import BarnabasError, ConfigError
from barnabas.java.find import Java, find_java
from barnabas.spark.cache import cache_directory, digest, write_whole
from barnabas.spark.catalog import catalog_java_options, catalog_settings, hold_catalog
from barnabas.spark.class_archive import ON_TOP, class_archive, make_when_idle
from barnabas.spark.installation import spark_home
from barnabas.spark.java_home import launcher_home
from barnabas.spark.progress import show_progress
from barnabas.spark.shipping import missing_here, package_zip
from barnabas.spark.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
MASTERS = re.compile(r"local|local\[.+\]|local-cluster\[.+\]|yarn|(spark|k8s)://.+")
GATEWAY = "PYSPARK_GATEWAY_PORT"
PREPARED: set[str] = set()
SERVERS = "spark.barnabas.bootstrap.servers"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
QUICK = "-XX:TieredStopAtLevel=1"
SOURCES = "org.apache.spark.sql.execution.datasources"
CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing"

LOGGING = """rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %m%n
# What fails a job reaches whoever started it as an exception; told here too, it would be told three times.
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
    """Spark could not be started, or its workers cannot run our code."""


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
    """Start Spark, or return the session that runs already.

    `bootstrap_servers` is what tables.py takes for topics where nothing else is said. `catalog` is a directory for
    tables that outlive the session. `python` is the Python of the workers: that of this process unless given, or
    PYSPARK_PYTHON for a remote master. `archive=False` neither uses nor makes a class-data archive. `short` is for jobs
    of seconds: Java compiles quickly rather than well, which shortens the time to the first row and costs long jobs.
    """
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession() or session_of_other_thread()
    if running is not None:
        spark = reuse(running, master, config)
    elif GATEWAY in os.environ:
        spark = submitted(master, app_name, config)
    else:
        settings = {"spark.app.name": app_name}
        if bootstrap_servers is not None:
            settings[SERVERS] = bootstrap_servers
        java_options = [QUICK] if short and is_local(master or LOCAL) else []
        if catalog is not None:
            hold_catalog(Path(catalog))
            settings |= catalog_settings(Path(catalog))
            java_options.append(catalog_java_options(Path(catalog)))
        java = find_java("Spark")
        if archive and is_local(master or LOCAL):
            classes = class_archive(java, spark_home(), cache_directory())
            java_options.append(classes.options)
            if not classes.exists:
                make_when_idle()
        spark = open_session(
            java=java,
            master=master or LOCAL,
            settings={**settings, **(config or {})},
            java_options=" ".join(filter(None, java_options)),
            python=python,
        )
    # A session that was begun without us may run any Python, on this machine too.
    same_python = running is None and GATEWAY not in os.environ and python is None
    prepare(spark, progress=progress, only_ours=short, same_python=same_python)
    return spark


def session_of_other_thread() -> SparkSession | None:
    """The session that runs, taken up by this thread too. A thread that has none can read topics, but where Spark looks
    for a sink it looks in the session of the thread alone."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        running = SparkSession.active()
    except PySparkRuntimeError:
        return None
    if running.sparkContext._jsc is None:
        return None  # only its context was stopped
    # Of what PySpark offers, this makes the session that of the thread.
    running.createDataFrame([], "none int")
    return running


def prepare(
    spark: SparkSession, *, progress: bool, only_ours: bool, same_python: bool = False
) -> None:
    """Our code where Spark needs it; once for every Spark."""
    context = spark.sparkContext
    if context.applicationId in PREPARED:
        return
    try:
        runs_this_python = same_python or context.pythonExec == sys.executable
        if not (is_local(context.master) and runs_this_python):
            ship(spark)
        if only_ours:
            look_for_no_other_sources(spark)
        register_source(spark)
    except BaseException:
        spark.stop()
        raise
    PREPARED.add(context.applicationId)
    if progress:
        show_progress(spark)


def submitted(master: str | None, app_name: str, config: Mapping[str, str] | None) -> SparkSession:
    """Within spark-submit Java runs already, and the master was chosen where the program was submitted."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for key, value in (config or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def reuse(
    running: SparkSession, master: str | None, config: Mapping[str, str] | None
) -> SparkSession:
    here = running.sparkContext.master
    if master not in (None, here):
        raise ConfigError("master", f"a session on {here} runs in this process; stop it first")
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
    """Spark itself: Java started with the settings of `default_settings` and whatever overrides them."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    check_master(master)
    cache = cache_directory()
    builder = SparkSession.builder.master(master)
    merged = {**default_settings(master, logging_file(cache), java_options), **settings}
    if JAVA_OPTIONS in settings:
        ours = default_settings(master, logging_file(cache), java_options)[JAVA_OPTIONS]
        merged[JAVA_OPTIONS] = f"{ours} {settings[JAVA_OPTIONS]}"
    for key, value in merged.items():
        builder = builder.config(key, value)
    quiet_errors()
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
                f"Java {java.version} in {java.home} ({java.found}) ended before Spark had started; "
                "what it said stands above"
            ) from None
        except Py4JJavaError as error:
            # A context whose master never answers is stopped by Spark itself, after a minute.
            if "stopped SparkContext" not in str(error):
                raise
            raise NoSpark(
                f"{master} did not take the session: is a Spark master there, and can it reach this machine?"
            ) from None


def check_master(master: str) -> None:
    """Java would say it after seconds, with a page of its stack."""
    if not MASTERS.fullmatch(master):
        raise ConfigError(
            "master",
            f"{master!r} is not a master; write local[4], spark://host:7077, yarn or k8s://https://host:port",
        )


def default_settings(master: str, logging: Path, java_options: str) -> dict[str, str]:
    """What we set for every session; only a local one is tuned for a machine we know."""
    shared = {
        "spark.ui.showConsoleProgress": "false",
        JAVA_OPTIONS: f"-Dlog4j2.configurationFile=file:{logging}",
    }
    if not is_local(master):
        return shared
    cores = str(local_cores(master))
    return shared | {
        JAVA_OPTIONS: " ".join([ON_TOP, shared[JAVA_OPTIONS], java_options]).strip(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": cores,
        "spark.default.parallelism": cores,
        # Half the calls to the file system of the default, and on a local disk just as atomic.
        "spark.sql.streaming.checkpointFileManagerClass": f"{CHECKPOINTS}.FileSystemBasedCheckpointFileManager",
    }


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def local_cores(master: str) -> int:
    """2 of local[2]; of local[*] as many as this process may use."""
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


def logging_file(cache: Path) -> Path:
    name = f"log4j2-{digest(LOGGING)}.properties"
    return write_whole(cache / name, LOGGING.encode())


def quiet_errors() -> None:
    """PySpark writes every error of a query to standard error, as JSON with Java's stack, before it raises it."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel("CRITICAL")


@contextmanager
def environment(**changes: str) -> Iterator[None]:
    """Only while Java starts: the Java that Spark runs on is no business of other programs this process runs."""
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


# ---- our code on the workers ----------------------------------------------------------------------------------


def register_source(spark: SparkSession) -> None:
    """Spark would find the source by itself, but would run it on a remote worker with the driver's path of Python and
    without the shipped package; and here, it would start two processes more to look."""
    from pyspark_barnabas import DefaultSource

    spark.dataSource.register(DefaultSource)


def look_for_no_other_sources(spark: SparkSession) -> None:
    """Spark looks for installed sources before it takes ours, in two Python processes: a second of a short job. Where
    a later Spark keeps what it found elsewhere, it looks, and nothing is lost but that second."""
    with suppress(Exception):
        jvm = spark.sparkContext._jvm
        manager = getattr(getattr(jvm, f"{SOURCES}.DataSourceManager$"), "MODULE$")
        empty = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap({})
        getattr(manager, "dataSourceBuilders_$eq")(jvm.scala.Some(empty))


def ship(spark: SparkSession) -> None:
    """The package to every worker, and a look whether what it needs is there."""
    from py4j.protocol import Py4JJavaError

    context = spark.sparkContext
    context.addPyFile(str(package_zip(cache_directory())))
    looks = context.parallelize([0, 1], 2).mapPartitions(lambda _: [missing_here()])
    try:
        found = looks.collect()
    except Py4JJavaError as error:
        raise unusable_python(context, str(error)) or error from None
    missing = sorted({name for names in found for name in names})
    if missing:
        raise NoSpark(
            f"the workers of {context.master} cannot import {', '.join(missing)}; "
            f"there, run: {shlex.quote(context.pythonExec)} -m pip install {' '.join(missing)}; "
            "or set PYSPARK_PYTHON to a Python that has them"
        )


def unusable_python(context: SparkContext, told: str) -> NoSpark | None:
    """What Spark says at length of a Python that is not there, or of another version than this one."""
    hint = "give python= or set PYSPARK_PYTHON to one that has what barnabas[spark] needs"
    who = f"the workers of {context.master} cannot use the Python {context.pythonExec}"
    if "Cannot run program" in told:
        return NoSpark(f"{who}: there is none; {hint}")
    if found := re.search(r"PYTHON_VERSION_MISMATCH\][^\n]*?different version: (\S+)", told):
        here = ".".join(map(str, sys.version_info[:2]))
        return NoSpark(f"{who}: it is {found[1]} and this one {here}; {hint}")
    return None
