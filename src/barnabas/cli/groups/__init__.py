"""`barnabas groups`: one file per command."""
