"""The configuration of a daemon: every setting, and reading, checking, comparing and writing them.

* ``sections`` names all sections; their settings lie in ``cluster_sections``, ``model_sections``, ``job_sections`` and
  ``status_sections``, each a ``setting`` of one of the ``kinds`` of values in a ``section``
* ``load`` reads a file and the ``environment``; ``check`` also reads what they name: ``keys``, ``key_directories``,
  ``places``, ``rack_file``
* ``template`` writes the commented file, ``directory`` makes a new node's directory
* ``changes`` finds what SIGHUP can apply; ``prints`` what hosts compare
"""
