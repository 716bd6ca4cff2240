"""The bulk path: chunks and manifests between hosts, over TCP connections of their own, in threads.

* ``settings`` every limit and time; ``errors`` how a fetch can end, each with its FailReason
* ``credentials`` TLS contexts from the cluster key, ``tokens`` one-time tokens for connections in clear
* ``channel`` one authenticated connection: heads, sendfile, receive; ``watchdog`` its deadlines and least rate
* ``slots`` uploads under way, ``traffic`` counters
* ``server`` answers requests; ``links`` pooled connections out; ``client`` fetches one chunk or manifest
* ``fetches`` worker threads that fetch, hand to the store and report; ``self_check`` strangers are refused

What does not live here: which chunk to fetch from whom (the planner), and hashing and writing (the store).
Payload bytes stay in these threads and in buffers of the pool; nothing here runs in the event loop.
"""
