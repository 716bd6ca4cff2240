"""The main job on one machine: real daemons as processes on loopback, a toy model, a storage server that counts.

``model``    safetensors shards and what lies beside them.   ``storage``  the HTTP server.
``hosts``    one daemon each: set up, started, asked, killed.  ``rot``      bytes that flip on a disk.
``compare``  every byte of every host against the original.    ``show``     what the deployment does, while it does it.
``play``     the demo itself, from the first file to the last comparison.

It uses what an operator uses: the code of ``init``, ``keygen`` and ``publish``, the inbox, and the status socket. The
daemons know nothing of it.
"""
