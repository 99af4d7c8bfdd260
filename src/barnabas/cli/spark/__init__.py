"""Commands that run Spark. `barnabas lifecycle report` runs it too; it is in cli/history."""
