"""`barnabas bench`: small benchmarks of a cluster, with the package's own client."""
