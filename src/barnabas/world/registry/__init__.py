"""The registry: a znode tree in ZooKeeper or in this process, behind the interface in ports.py."""
