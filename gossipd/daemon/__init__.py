"""The daemon: one brain wired to the hands. Nothing here decides what the planner decides.

``main`` is the door (signals, exit code), ``app`` opens everything in order and nests its life, ``driver`` owns the
planner, ``executor`` turns its commands into work for the hands, ``deployments`` is the life of each deployment on this
host, ``dissemination`` carries signed statements between hosts, ``status_view`` answers status questions,
``admin_operations`` does what an operator asks on the local socket, ``state_dir`` is what is kept on disk besides
chunks, ``membership_host`` and ``member_directory`` are what this host says to membership and hears from it.
"""
