"""One file per API family."""
