"""The whole cluster on one virtual clock under faults, with an oracle that knows everything.

What is real: membership (``Swim``), the planner, the store with its journal, windows, recovery, scrub and repair, the
daemon's table of members, the control plane's tables of followers, the upload slots. What is made up: time, wires,
disks (``MemoryDisk``, which knows what a crash leaves), external storage, and the hands that join the parts, which in
the daemon are threads and trio tasks (``daemon`` says which code each part stands for).

``python -m tests.sim.campaign`` runs seeds; a seed decides everything, and gives the same trace hash each time.
"""
