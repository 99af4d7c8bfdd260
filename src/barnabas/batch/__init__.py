"""Record batches: header, validation, compression, checksum, building and recompression."""
