"""The daemon: the brains wired to what moves bytes. Nothing here decides what a brain decides.

``main`` handles signals and the exit code, ``app`` opens everything in order and nests its life, ``planner_driver``
owns the planner, ``planner_executor`` turns its commands into work. ``deployment_driver`` and ``deployment_executor``
do both for the deployment brain, ``cluster_roster`` tells it who belongs, ``triggers`` passes trigger requests on to
it. ``status_view`` and ``admin_operations`` answer the local socket, ``state_dir`` is what is kept on disk besides
chunks, ``membership_host`` and ``member_directory`` are what this host says to membership and hears from it.
"""
