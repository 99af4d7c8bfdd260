"""`barnabas registry`: one file per command."""
