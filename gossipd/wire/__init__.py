"""Codecs of what travels between hosts, pure: bytes to typed values and back, every limit stated."""
