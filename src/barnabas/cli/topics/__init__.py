"""`barnabas topics`: one file per command. `topics history` is in cli/history."""
