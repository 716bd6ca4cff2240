"""The deployment brain: what is said about deployments, and how far each is on this host. Pure.

What lives here: signed statements and their store, progress records and their table. What does not: the choice of
chunks (``swarm``), and files (``store``, ``daemon``).
"""
