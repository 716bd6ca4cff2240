"""The record of what was decided, as a chain of hashes.

What lives here: the log and its file. What does not: what is worth a record, which each adapter decides.
"""
