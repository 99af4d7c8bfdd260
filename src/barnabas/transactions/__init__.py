"""Transaction coordinator: producer ids, epochs and the two-phase commit of transactional producers."""
