"""The daemon: one brain wired to the hands. Nothing here decides what the planner decides.

``run`` is the door (signals, exit code), ``node`` opens everything in order and nests its life,
``brain`` owns the planner, ``performer`` turns its commands into work for the hands, ``deployments`` is
the life of each deployment on this host, ``spread`` carries signed statements between hosts, ``view``
answers status questions, ``operations`` does what an operator asks on the local socket, ``state`` is what
is kept on disk besides chunks, ``gossip`` and ``cluster`` are what this host says to membership and hears from it.
"""
