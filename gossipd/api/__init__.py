"""The status of a daemon, and the local sockets that serve it.

* ``schema`` the fields of the status page; ``deployment_row`` fills one row of it
* ``server`` the routes; ``request_guard`` the limits before them; ``local_socket`` binding; ``client`` the other end
* ``readiness`` which version is complete where it matters; ``long_poll`` waiting for it
* ``metrics``, ``counters`` Prometheus
* ``ports`` the protocols ``StatusPort`` and ``AdminPort``, by which the daemon is reached

Nothing here decides anything about a model.
"""
