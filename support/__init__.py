"""Child processes for tests, benchmarks, the demo and the interoperability tests. Not part of the wheel.

process.py          a child process with a log file: start, wait for a line, signal, pause, stop, kill
python_process.py   Python code in a child process
command.py          `barnabas <arguments>` in a child process
broker.py           `barnabas up` in a child process
cluster.py          `barnabas broker` in child processes, with a ZooKeeper
ports.py            free ports
waiting.py          wait for a condition until a deadline
seed.py             a random seed for each run
"""
