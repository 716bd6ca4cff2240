"""The bulk path: chunks and manifests between hosts, over TCP connections of their own, in threads.

* Both sides: ``settings`` (limits and times), ``errors`` (how a fetch can end), ``channel`` (one connection),
  ``watchdog`` (deadlines), ``credentials`` (TLS), ``tokens`` (for unencrypted connections), ``traffic`` (counters)
* Asking: ``client`` (fetches), ``fetch`` (one of them, for other threads), ``pipelined_fetch``, ``envelope_body``
  (manifests), ``connections`` (the pool), ``dialer``
* Serving: ``listener`` (accepts), ``known_connections``, ``server`` (answers), ``slots`` (uploads), ``refusal_pace``,
  ``scratch`` (memory to encrypt from), ``self_check`` (strangers are refused)
* Beside other traffic: ``link_share`` (what a daemon takes of a link that others use)

What does not live here: choosing chunks and peers (the planner), hashing and writing (the store). Payload bytes stay in
these threads and in buffers of the pool, outside the event loop.
"""
