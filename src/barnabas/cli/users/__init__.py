"""`barnabas users`: users with SCRAM credentials."""
