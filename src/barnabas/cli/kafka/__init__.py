"""Kafka's own commands, with Kafka's options, output and exit codes: scripts written for them work unchanged.

    kafka-topics    topic_options.py   topics.py ─┬─► topics_by_protocol.py    --bootstrap-server: requests to brokers
                                                  └─► topics_by_zookeeper.py   --zookeeper: writes znodes
    kafka-configs   config_options.py  configs.py ┬─► configs_by_protocol.py, quotas_by_protocol.py
                                                  └─► configs_by_zookeeper.py
    kafka-leader-election              leader_election.py
    kafka-reassign-partitions   reassign_options.py  reassign.py ─► log_dir_moves.py
    zookeeper-security-migration       security_migration.py

Standard output is that of Kafka 3.9. With --zookeeper it is that of Kafka 2.8, the last kafka-topics with this option.
"""
