"""The messages of the protocol, one file per family."""
