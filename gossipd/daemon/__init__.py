"""The daemon: the brains wired to what moves bytes. Nothing here decides what a brain decides.

``main`` handles signals and the exit code, ``app`` opens everything in order and nests its life, ``driver`` owns the
planner, ``executor`` turns its commands into work. ``deployment_driver`` and ``deployment_executor`` do both for the
deployment brain, ``roster`` tells it who belongs, ``triggers`` passes trigger requests on to it. ``status_view`` and
``admin_operations`` answer the local socket, ``state_dir`` is what is kept on disk besides chunks, ``membership_host``
and ``member_directory`` are what this host says to membership and hears from it.
"""
