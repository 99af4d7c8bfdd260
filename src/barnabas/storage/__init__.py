"""One log on disk: synchronous, over a Disk."""
