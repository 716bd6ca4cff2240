"""Daemons of an older commit and of this one in one cluster: do they deliver to each other?

``python -m tests.compat [--json] [--old COMMIT]`` takes the older code out of the repository into a temporary
directory, starts two hosts of each, and delivers one model that only the old ones may read from storage, and one that
only the new ones may. ``mixed`` is the run, ``__main__`` the command.
"""
