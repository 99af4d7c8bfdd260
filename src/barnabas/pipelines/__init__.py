"""Pipelines as files, on Spark Declarative Pipelines (`pyspark.pipelines`), with topics as tables and sinks.

spec.py, project.py       the pipeline file; a new project, and the files of a project
sql_statements.py         outputs, flows and topics in SQL files                       (pure)
names.py                  names without the catalog and database of the pipeline       (pure)
graph.py                  the outputs and flows of a pipeline, and checks of them      (pure)
registry.py, client.py    define the graph in a Spark Connect server, and run it
server.py, server_process.py   the Connect server: a process of its own, with its JVM
failure.py                errors of a pipeline as one line with file and line          (pure)
progress.py               the progress of every flow                                   (pure)
storage.py, run_state.py  the storage directory; files that describe running pipelines
runner.py                 one run, or runs until stopped

command ── pipe ──► server.py ── py4j ──► JVM       each ends when the process before it ends
   └───── Spark Connect (gRPC) ───────────►│
"""
