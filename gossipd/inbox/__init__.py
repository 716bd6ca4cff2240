"""The folder into which manifests are dropped.

What lives here: which file is offered when, and what becomes of it. What does not: whether a manifest is accepted.
"""
