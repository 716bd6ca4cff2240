"""The signed description of a model: its format, its limits, its chunks and its sources.

What lives here: parsing and building manifests, pure. What does not: sources (``sources``) and files (``publish``).
"""
