"""Codecs of what hosts send each other, pure: bytes to typed values and back, every limit stated."""
