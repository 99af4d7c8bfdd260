"""Command lines of Kafka's programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from barnabas.java.find import Java
from barnabas.java.process import QUICK_START, java_command, write_if_changed

SHORT_LIVED = (*QUICK_START, "-Xmx256m")
SMALL_SERVER = ("-XX:+UseSerialGC", "-Xshare:auto", "-Xms64m", "-Xmx512m")

LOG4J_1 = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m (%c)%n
# The port, and the end of the start.
log4j.logger.kafka.network.DataPlaneAcceptor=INFO
log4j.logger.kafka.server.KafkaServer=INFO
"""


def command(
    java: Java,
    class_path: str,
    main_class: str,
    *arguments: str,
    scratch: Path,
    options: Sequence[str] = SHORT_LIVED,
) -> list[str]:
    """Build a command line. Writes the logging configuration of both Log4j versions to `scratch`."""
    log4j_1 = write_if_changed(scratch / "log4j.properties", LOG4J_1)
    return java_command(
        java,
        class_path,
        main_class,
        *arguments,
        directory=scratch,
        options=(*options, f"-Dlog4j.configuration={log4j_1.as_uri()}"),
    )
