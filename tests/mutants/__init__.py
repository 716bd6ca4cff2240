"""Planted bugs: a suite that cannot fail proves nothing, so each of these small wrong changes must make it fail.

* ``mutant`` one wrong change as a value, and what it makes of a text
* ``store``, ``trust``, ``swarm``, ``members``, ``rights``, ``exhausted`` the changes, as data;
  ``catalogue`` all of them
* ``trial`` a copy of the tree, one change in it, the tests named for it; ``witness`` watches from inside pytest

``python -m tests.mutants --json [--only NAME] [--list]`` runs them all. The checkout is never written to.
"""
