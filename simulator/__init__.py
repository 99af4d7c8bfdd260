"""The same doors as barnabas.world, on virtual time and with a disk that can forget."""
