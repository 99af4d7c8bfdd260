"""Kafka's own commands, with Kafka's options, lines and exit codes: scripts written for them work unchanged.

    kafka-topics    topic_options.py   topics.py ─┬─► topics_by_protocol.py    --bootstrap-server: ask the brokers
                                                  └─► topics_by_zookeeper.py   --zookeeper: write the znodes
    kafka-configs   config_options.py  configs.py ┬─► configs_by_protocol.py
                                                  └─► configs_by_zookeeper.py

The words on standard output are those of Kafka 3.9, and with --zookeeper those of 2.8, the last release that had it.
"""
