"""The audit log: a record of decisions, as a chain of hashes.

``log`` takes records and writes them in batches; ``chain_file`` is the file; ``witness`` keeps what
other hosts tell of theirs. Each adapter decides what to record.
"""
