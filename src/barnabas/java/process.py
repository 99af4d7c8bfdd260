"""Java programs as child processes: the command line, the log file, and a guard against orphans.

A shell starts the guard in the background and then replaces itself with Java (`exec`). The guard reads a pipe from this
process. When this process ends, even by SIGKILL, the pipe closes and the guard kills Java. The guard is in Java's
process group, so the system does not reuse Java's process id while the guard runs.
"""

from __future__ import annotations

import re
import signal
import subprocess
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
STOP_S = 30.0
# Standard input of the shell is the pipe to the guard. Java gets an empty standard input.
WITH_GUARD = """\
exec 3<&0
(read -r _ <&3; kill -9 $$) >/dev/null 2>&1 &
exec "$@" 3<&- </dev/null
"""
EXCEPTION = re.compile(
    r"^(?:Exception in thread \S+ )?((?:[\w$]+\.)+[\w$]*(?:Exception|Error)\b.*)$", re.MULTILINE
)
CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
ERROR_LINE = re.compile(r"^.*\b(?:ERROR|FATAL)\b.*$", re.MULTILINE)


def java_command(
    java: Java,
    class_path: str,
    main_class: str,
    *arguments: str,
    directory: Path,
    options: Sequence[str],
) -> list[str]:
    """Return the command line of a program that logs warnings and errors. Writes Log4j 2 settings to `directory`."""
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


class JavaProcess:
    """A Java program as a child process. The constructor starts it. `name` is for error messages."""

    def __init__(self, name: str, command: Sequence[str], *, directory: Path, log: Path) -> None:
        self.name = name
        self.log_path = log
        with log.open("wb") as output:
            self.child = subprocess.Popen(
                ["/bin/sh", "-c", WITH_GUARD, "sh", *command],
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; -9 after SIGKILL."""
        return self.child.poll()

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def kill(self) -> None:
        """Send SIGKILL. Returns when the process has ended. Idempotent."""
        self.child.kill()
        self.end_guard()

    def stop(self) -> int:
        """Send SIGTERM, and SIGKILL after `STOP_S`. Returns the exit code."""
        self.child.terminate()
        try:
            self.child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
        return self.end_guard()

    def pause(self) -> None:
        self.child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.child.send_signal(signal.SIGCONT)

    def end_guard(self) -> int:
        """Wait for the end of Java, then end the guard. Returns Java's exit code."""
        code = self.child.wait()
        assert self.child.stdin is not None
        self.child.stdin.close()
        return code


def find_fault(log: str) -> str:
    """Return the reason for a failure in one line: the exception and, if it adds information, its root cause.

    An exception logged as an error is preferred to one logged as a warning. Empty if the log reports no failure.
    """
    error = ERROR_LINE.search(log)
    exception = (error and EXCEPTION.search(log, error.start())) or EXCEPTION.search(log)
    if exception is None:
        return error[0] if error else ""
    trace = log[exception.end() :]
    if following := EXCEPTION.search(trace):
        trace = trace[: following.start()]
    causes = CAUSE.findall(trace)
    if causes and causes[-1].partition(": ")[2] not in exception[1]:
        return f"{exception[1]} ({causes[-1]})"
    return exception[1]
