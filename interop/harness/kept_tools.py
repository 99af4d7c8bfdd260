"""Kafka's tools in one Java that is kept, for many short calls: to start one takes longer than what it then does.

A tool that ends its Java ends this one for all. Those that do (wrong options, verifiable consumers) have a Java of
their own in tools.py.
"""

from __future__ import annotations

import os
import subprocess
from functools import reduce
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JJavaError

from interop.harness import jvm
from interop.harness.tools import Outcome, Tools
from support.process import die_with_parent

# Python speaks to Java by it, and Spark brings it along.
(PY4J,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")


class KeptTools:
    """Those of one release."""

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        # Behind the others: classes laid ready hold for a class path that begins with theirs.
        class_path = tools.jars.class_path(tools.release) + os.pathsep + str(PY4J)
        with (tools.scratch / "kept.log").open("wb") as log:
            self.process = subprocess.Popen(
                jvm.command(
                    tools.java,
                    class_path,
                    "py4j.GatewayServer",
                    *("--die-on-broken-pipe", "0"),
                    scratch=tools.scratch,
                    options=(*jvm.SHORT_LIVED, *tools.classes_laid_ready),
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        assert self.process.stdout is not None
        port = int(self.process.stdout.readline())
        # What is left behind in this Java goes with it: nobody is to knock at its port when it is gone.
        self.gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, enable_memory_management=False)
        )

    def run(self, tool: str, *arguments: str) -> Outcome:
        """Standard output, and what goes to standard error besides the log."""
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
        self.process.communicate()
