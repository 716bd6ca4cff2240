"""The bulk path: chunks and manifests between hosts, over TCP connections of their own, in threads.

* ``settings`` limits and times, ``errors`` how a fetch can end, each with its FailReason
* ``credentials`` TLS contexts from the cluster key, ``tokens`` one-time tokens for unencrypted connections
* ``channel`` system calls of one connection, ``watchdog`` its deadlines and least rate
* ``slots`` uploads in progress, ``traffic`` counters
* ``listener`` accepts and counts connections, ``server`` answers requests
* ``dialer`` opens connections, ``connections`` pools them, ``client`` fetches chunks and manifests
* ``fetch`` one fetch as other threads see it, ``pipelined_fetch`` a fetch that waits for the one before it
* ``self_check`` connects to our own port without credentials and expects a refusal

What does not live here: choosing chunks and peers (the planner), hashing and writing (the store). Payload bytes stay in
these threads and in buffers of the pool, outside the event loop.
"""
