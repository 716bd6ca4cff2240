"""The signed description of a model: its format, its limits, its chunks and its sources.

* The format: ``manifest`` (what is verified), ``envelope`` (signatures), ``payload`` (fields and rules),
  ``strict_msgpack``, ``errors``
* Chunks: ``chunk_layout``, ``chunk_borders`` (in files of tensors), ``equal_chunks`` (in one
  model), ``shared_chunks`` (with others), ``tensor_index``
* Names and paths: ``names``, ``paths``
* Sources: ``source_url``, ``source_policy`` (what this host may read)
* What publishers say: ``annotations``, ``retention`` (which versions live), ``shards`` (files on several hosts)

What lives here: parsing and building manifests, pure. What does not: sources (``sources``) and files (``publish``).
"""
