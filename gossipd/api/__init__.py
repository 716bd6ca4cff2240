"""What people see of a daemon, and the doors by which they reach it.

* ``schema``, ``health``   the words of the status page, as typed values
* ``server``, ``request_guard``      the unix socket: HTTP and JSON; ``client`` is its other end, standard library only
* ``metrics``, ``counters``  Prometheus
* ``inbox``, ``drop_folder`` the folder into which manifests are dropped
* ``log``, ``chain_file``  the hash-chained record of what was decided
* ``logging``, ``systemd``       stderr and systemd

Nothing here decides anything about a model: the daemon hands in two protocols, ``StatusPort`` and ``AdminPort``
(``api.ports``), and the inbox is given one coroutine to offer its files to.
"""
