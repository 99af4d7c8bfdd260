"""Group coordinator: membership, rebalances and committed offsets of consumer groups."""
