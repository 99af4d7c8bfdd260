"""How fast, how big, how soon: measurements of a broker in a process of its own.

    python -m benchmarks                      everything: a table, results/latest.json and plots
    python -m benchmarks --quick              the same in under two minutes, with fewer and shorter runs
    python -m benchmarks produce --batch 16k  one load, one line
    python -m benchmarks profile produce --batch 16k   where the broker spends that load's time

A load comes in two ways: prebuilt frames over a plain socket (frames.py), where the broker is nearly all of the work,
and librdkafka (librdkafka.py), as applications would. Every run has a fresh directory and a fresh broker, a fixed
amount of data, recycled page cache and a warm-up; runs of what is compared alternate, and the table shows the median
and the spread. The broker's CPU-seconds per GB say more than MB/s, which depend on who else uses the cores.
"""
