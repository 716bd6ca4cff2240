"""What people see of a daemon, and the doors by which they reach it.

* ``snapshot``, ``health``   the words of the status page, as typed values
* ``status``, ``guard``      the unix socket: HTTP and JSON; ``status_client`` is its other end, standard library only
* ``metrics``, ``counting``  Prometheus
* ``inbox``, ``drop_folder`` the folder into which manifests are dropped
* ``audit``, ``audit_file``  the hash-chained record of what was decided
* ``logs``, ``notify``       stderr and systemd

Nothing here decides anything about a model: the daemon hands in two protocols, ``StatusView`` and ``Operations``
(``ops.doors``), and the inbox is given one coroutine to offer its files to.
"""
