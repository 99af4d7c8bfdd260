"""The registry: a znode tree in ZooKeeper or in this process. The interface is in ports.py."""
