"""The command line of a Java program: it starts quickly, needs little memory, and logs only warnings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from barnabas.java.find import Java

# The optimizing compiler (C2) does not pay off in a process that runs for a second, or in a small server.
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LOG4J_2 = """\
status = off
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c)%n%throwable
"""


def java_command(
    java: Java,
    class_path: str,
    main_class: str,
    *arguments: str,
    directory: Path,
    options: Sequence[str],
) -> list[str]:
    """Return the command line. Writes the configuration of Log4j 2 to `directory`."""
    logging = write_if_changed(directory / "log4j2.properties", LOG4J_2)
    return [
        str(java.binary),
        *options,
        f"-Dlog4j2.configurationFile={logging}",
        # Java writes its own log to standard output, between the lines of the program.
        *("-Xlog:disable", "-Djava.awt.headless=true"),
        *("-cp", class_path, main_class, *arguments),
    ]


def write_if_changed(path: Path, text: str) -> Path:
    """Write a file only if its content changes, because a running program may read it. Returns the path."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path
