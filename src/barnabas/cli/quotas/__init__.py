"""`barnabas quotas`: one file per command. They share the options and the output of `barnabas configs`."""
