"""Commands that run Spark.

    barnabas sql      sql.py      one query, as a batch or as a stream
    barnabas spark    shell.py    a Python prompt with a session

`barnabas lifecycle report` runs Spark too; it is in cli/history.
"""
