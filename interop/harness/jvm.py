"""How Java is started here: quickly, in little memory, and without a word that nobody asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from barnabas.spark.java import Java

# The second compiler never pays for itself in a process that lives for a second.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")
SMALL_SERVER = ("-XX:+UseSerialGC", "-Xshare:auto", "-Xms64m", "-Xmx512m")

LOG4J_1 = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m (%c)%n
# The port it was given, and that it is up.
log4j.logger.kafka.network.DataPlaneAcceptor=INFO
log4j.logger.kafka.server.KafkaServer=INFO
"""
LOG4J_2 = """status = off
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c)%n%throwable
"""


def command(
    java: Java,
    class_path: str,
    main_class: str,
    *arguments: str,
    scratch: Path,
    options: Sequence[str] = SHORT_LIVED,
) -> list[str]:
    """`scratch` takes the logging set-up; both kinds are named, and each Java program looks at its own."""
    return [
        str(java.binary),
        *options,
        f"-Dlog4j.configuration={written(scratch / 'log4j.properties', LOG4J_1).as_uri()}",
        f"-Dlog4j2.configurationFile={written(scratch / 'log4j2.properties', LOG4J_2)}",
        # Java's own log would go to standard output, between a tool's lines.
        *("-Xlog:disable", "-Djava.awt.headless=true"),
        *("-cp", class_path, main_class, *arguments),
    ]


def written(path: Path, text: str) -> Path:
    if not path.exists():
        path.write_text(text)
    return path
