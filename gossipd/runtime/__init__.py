"""Mechanisms under every adapter, without knowledge of models; nothing here decides about the cluster.

* The loop: ``turn_loop``, ``turn_interval``, ``loop_clock``, ``look_interval``, ``slow_steps`` (what holds it up),
  ``task_tree`` (where tasks wait), ``zmq_trio``
* Threads: ``worker_threads`` (blocking calls of the loop), ``worker_pool``, ``thread_priority``,
  ``named_thread``; what the system gives: ``process_limits``, ``system_refusals``
* Memory and rates: ``buffer_pool``, ``memory_room``, ``rate_limit`` (bytes), ``quotas`` (each writer's share)
* The network: ``bulk_sockets`` (connections for model bytes), ``network_interface`` (what an interface has carried)
* Connections: ``pending_connections``, ``flooding_addresses``, ``connection_filter``, ``traffic_marks``
* Chunks between adapters: ``incoming_chunks`` (relayed during their arrival), ``ports`` (the protocols)
* Files and logs: ``directory_safety``, ``file_access``, ``regular_file``, ``logs``, ``line_stream``
"""
