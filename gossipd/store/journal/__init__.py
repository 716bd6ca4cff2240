"""Which chunks are verified, as bytes and as a file, and the order in which writes become durable."""
