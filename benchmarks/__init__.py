"""Benchmarks: throughput, latency, memory and start-up time of a broker in its own process.

    python -m benchmarks                      everything: a table, results/latest.json and plots
    python -m benchmarks --quick              the same in under two minutes, with fewer and shorter runs
    python -m benchmarks produce --batch 16k  one load, one line per direction
    python -m benchmarks profile produce --batch 16k   CPU profile of the broker under that load

Two clients send each load. Prebuilt frames over a plain socket (frames.py) cost the client almost nothing. librdkafka
(librdkafka.py) is what applications use. The floor (floor.py) is what the kernel alone costs. Every run has a new
directory, a new broker, a fixed amount of data, a recycled page cache and a warm-up. Configurations that are compared
alternate. The table shows the targets (targets.py), the median and the spread. CPU-seconds per GB are more reliable
than MB/s, which depend on the other load of the machine.
"""
