"""The status of a daemon, and the local sockets that serve it.

* ``schema`` the fields of the status page; ``deployment_row`` fills one row of it
* ``routes`` which method answers a path: ``question_pages``, ``event_pages``, ``operator_commands``, ``job_commands``
* ``request_fields`` the arguments of a request; ``answers`` the form of what is sent back
* ``request_guard`` the limits before the routes; ``local_socket`` binding; ``client`` the other end
* ``readiness`` which version is complete where it matters; ``long_poll`` waiting for it
* ``metrics``, ``counters`` Prometheus
* ``ports`` the protocols ``StatusPort`` and ``AdminPort``, by which the daemon is reached

Nothing here decides anything about a model.
"""
