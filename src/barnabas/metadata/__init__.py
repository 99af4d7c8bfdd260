"""What the cluster knows of itself."""
