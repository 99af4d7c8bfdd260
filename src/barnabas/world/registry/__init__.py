"""The znode tree: one port, one door for each kind of registry."""
