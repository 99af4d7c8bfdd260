"""`barnabas registry`: the commands, and the sources that they read."""
