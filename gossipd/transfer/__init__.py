"""The bulk path: chunks and manifests between hosts, over TCP connections of their own, in threads.

* ``settings`` every limit and time; ``errors`` how a fetch can end, each with its FailReason
* ``credentials`` TLS contexts from the cluster key, ``tokens`` one-time tokens for connections in clear
* ``channel`` one authenticated connection: heads, sendfile, receive; ``watchdog`` its deadlines and least rate
* ``slots`` uploads under way, ``traffic`` counters
* ``listener`` accepts and counts connections, ``server`` answers requests
* ``dialer`` opens connections, ``connections`` keeps them, ``client`` fetches one chunk or manifest
* ``self_check`` knocks as a stranger and expects to be refused

What does not live here: which chunk to fetch from whom (the planner), and hashing and writing (the store).
Payload bytes stay in these threads and in buffers of the pool; nothing here runs in the event loop.
"""
