"""Kafka's tools in one long-lived JVM, for many short calls: starting a JVM takes longer than a call.

A tool that exits its JVM would end it for all. tools.py runs such tools (wrong options, verifiable consumers) in their
own JVM.
"""

from __future__ import annotations

import os
from functools import reduce
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JJavaError

from interop.harness import jvm
from interop.harness.tools import Outcome, Tools
from support.process import START_SECONDS, ChildProcess

# The library that connects Python and Java, from PySpark's jars.
(PY4J,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")


class ResidentTools:
    """The tools of one release."""

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        # Last: a class archive is valid only for a class path that begins with its own.
        class_path = tools.jars.class_path(tools.release) + os.pathsep + str(PY4J)
        self.process = ChildProcess(
            f"the tools of {tools.release}",
            jvm.command(
                tools.java,
                class_path,
                "py4j.GatewayServer",
                *("--die-on-broken-pipe", "0"),
                scratch=tools.scratch,
                options=(*jvm.SHORT_LIVED, *tools.class_archive_options),
            ),
            log=tools.scratch / "kept.log",
            is_piped=True,
            is_isolated=True,
        )
        port = int(self.process.read_line(START_SECONDS))
        # Without memory management, no finalizer calls the JVM after its end.
        self.gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, enable_memory_management=False)
        )

    def run(self, tool: str, *arguments: str) -> Outcome:
        """Run a tool and capture its output."""
        java: Any = self.gateway.jvm.java
        out, err = java.io.ByteArrayOutputStream(), java.io.ByteArrayOutputStream()
        java.lang.System.setOut(java.io.PrintStream(out, True))
        java.lang.System.setErr(java.io.PrintStream(err, True))
        given = self.gateway.new_array(java.lang.String, len(arguments))
        for index, argument in enumerate(arguments):
            given[index] = argument
        thrown = ""
        try:
            reduce(getattr, self.tools.main_class(tool).split("."), self.gateway.jvm).main(given)
        except Py4JJavaError as error:
            thrown = str(error.java_exception)
        return Outcome(
            exit_code=1 if thrown else 0, stdout=out.toString(), stderr=err.toString() + thrown
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.gateway.shutdown()
        self.process.kill()
