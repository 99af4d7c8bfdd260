"""The Spark Connect server of a pipeline, in a process of its own: `python -m barnabas.pipelines.server`.

Standard input brings one line of JSON with the arguments, and its end ends the server: the command that started it has
ended, perhaps by SIGKILL. Standard output gets one line of JSON: the port, or the error. All other output goes to
standard error. The JVM ends with this process, because PySpark's JVM reads a pipe from it. This process ends with the
JVM, so that the command starts a new one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from barnabas.errors import BarnabasError, ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_SETTINGS = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "localhost",
    "spark.connect.grpc.binding.port": "0",
}
JVM_END_S = 20


def serve() -> None:
    answers = take_standard_output()
    arguments = json.loads(sys.stdin.readline())
    try:
        spark = start_server(arguments)
        port = connect_port(spark)
    except ConfigError as error:
        answer(answers, {"error": str(error), "key": error.key, "why": error.why})
        sys.exit(2)
    except BarnabasError as error:
        answer(answers, {"error": str(error)})
        sys.exit(1)
    end_with_java(spark)
    answer(answers, {"port": port})
    sys.stdin.read()
    stop_server(spark)


def take_standard_output() -> IO[str]:
    """Return standard output as a file that the JVM does not inherit. Descriptor 1 becomes standard error."""
    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return own


def answer(answers: IO[str], document: dict[str, Any]) -> None:
    # A command that has ended reads nothing. The end of standard input follows.
    with suppress(BrokenPipeError):
        answers.write(json.dumps(document) + "\n")
        answers.flush()


def start_server(arguments: dict[str, Any]) -> SparkSession:
    from barnabas.spark.launcher import FAST_COMPILER, JAVA_OPTIONS, session, share_source

    catalog, config = arguments["catalog"], arguments["config"]
    if arguments["short"]:
        config[JAVA_OPTIONS] = f"{FAST_COMPILER} {config.get(JAVA_OPTIONS, '')}".strip()
    spark = session(
        arguments["master"],
        app_name=arguments["app_name"],
        bootstrap_servers=arguments["bootstrap_servers"],
        config={**config, **CONNECT_SETTINGS},
        catalog=None if catalog is None else Path(catalog),
        progress=False,
    )
    share_source(spark)
    return spark


def connect_port(spark: SparkSession) -> int:
    """Return the port that the plugin listens on. PySpark has no API for this."""
    jvm = spark.sparkContext._jvm
    service = getattr(
        getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$"), "MODULE$"
    )
    return int(service.localPort())


def java_process(spark: SparkSession) -> subprocess.Popen[bytes] | None:
    return getattr(type(spark.sparkContext)._gateway, "proc", None)


def end_with_java(spark: SparkSession) -> None:
    """End this process when the JVM ends."""
    process = java_process(spark)
    if process is None:
        return

    def wait() -> None:
        process.wait()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def stop_server(spark: SparkSession) -> None:
    """Stop Spark, and wait until the JVM has ended."""
    process = java_process(spark)
    with suppress(Exception):
        spark.stop()
    if process is None or process.stdin is None:
        return
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(JVM_END_S)
    except subprocess.TimeoutExpired:
        process.kill()


if __name__ == "__main__":
    serve()
