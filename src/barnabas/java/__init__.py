"""Java for the programs that need it: ZooKeeper, Spark, and the real Kafka in the interoperability tests.

find.py      find an installed Java and its version
process.py   the command line of a Java program; start it, stop it, and read its log
"""
