"""One module per group of requests."""
