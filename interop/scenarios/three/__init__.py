"""A script for three brokers: topics are created in every way, then brokers are stopped and killed one after another.

Every step is followed by a look at everything: all znodes, and the metadata of every broker that is up.
"""
