"""Copies of models on this disk: found, recovered, published, scrubbed, removed."""
