"""The logs of one broker on disk. Synchronous; all file access goes through a Disk."""
