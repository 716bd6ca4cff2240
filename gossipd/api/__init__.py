"""The status of a daemon, and the local sockets that serve it. Nothing here decides anything about a model.

* Answers: ``schema`` (the fields), ``deployment_row``, ``host_groups`` (that row with few hosts), ``manifest_row``,
  ``report_row``, ``sketch_row``, ``readiness``, ``events`` and ``paced_states`` (how quickly they are told)
* Requests: ``routes`` and ``router`` (which method answers a path), ``http_messages``, ``question_pages``,
  ``event_pages``, ``long_poll``, ``operator_commands``, ``job_commands``, ``request_fields`` (arguments), ``answers``
  (the form), ``openapi``
* Sockets: ``local_socket`` (binding), ``local_server``, ``request_guard`` (the HTTP server), ``socket_places``,
  ``http_exchange``, ``socket_name``, ``calling_process`` (who asks)
* Metrics: ``metrics``, ``counters``, ``refusal_counters``
* Both ends: ``ports`` (how the daemon is reached), ``client``, ``unix_connection``
"""
