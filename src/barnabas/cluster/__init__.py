"""Clusters on this machine: brokers, a ZooKeeper, and the pytest fixtures.

    local.py               LocalCluster, for tests and notebooks (import it as `barnabas.LocalCluster`)
    in_process.py          the brokers of a cluster on threads of this process, with an embedded registry
    faults.py              cut connections between brokers, and slow disks
    zookeeper_servers.py   a real ZooKeeper of one or three nodes
    pytest_plugin.py       the pytest fixtures and the marker `barnabas`
    settings.py            default settings of the brokers of a cluster on one machine
    real_world.py          the real clock, network and disk of a broker

This module imports nothing, so that `barnabas zookeeper` does not load a broker.
"""
