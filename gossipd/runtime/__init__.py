"""Mechanisms under every adapter, without knowledge of models: they decide nothing.

``turn_loop`` and ``turn_interval`` (the daemon's main loop), ``worker_threads`` (blocking calls), ``thread_priority``,
``buffer_pool`` (bounded memory), ``rate_limit``, ``incoming_chunks`` (relaying chunks during their arrival), ``ports``
(protocols between adapters), ``logs``, ``zmq_trio`` (ZeroMQ under trio).
"""
