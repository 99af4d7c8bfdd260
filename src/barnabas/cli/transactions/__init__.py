"""`barnabas transactions`: one file per command."""
