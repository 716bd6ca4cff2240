"""The words that all packages share: values, events, commands and errors. Pure.

What lives here: no decision and no I/O. What does not: manifests (``manifest``) and keys (``identity``).
"""
