"""A script for three brokers: topics are created in every way, then brokers are stopped and killed one after another.

After every step the whole cluster is recorded: all znodes, and the metadata of every running broker.
"""
