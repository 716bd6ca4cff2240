"""The deployment brain: what is said about deployments, and how far each is on this host. Pure.

What lives here: signed statements and their store, progress records and their table, a deployment's life. What does
not: the choice of chunks (``swarm``), and files (``store``, ``daemon``).

``brain`` passes each event to the part that it concerns: ``dissemination`` (statements between hosts), ``orders`` (what
operators order) or ``deployment_table`` (the table of deployments; ``deployment_steps`` has the steps of one,
``states`` their tables).
"""
