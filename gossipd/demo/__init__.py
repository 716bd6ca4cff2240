"""A deployment on one machine: real daemons as processes on loopback, a toy model, a storage server that counts bytes.

``toy_model`` writes safetensors shards and the files beside them; ``storage`` is the HTTP server; ``hosts`` sets up,
starts, asks and kills daemons, which ``attached`` ends with the demo; ``rot`` flips bytes on a disk; ``compare``
checks every byte of every host; ``web_page`` shows it in a browser; ``play`` runs all of it.

The demo uses an operator's means: the code of ``init``, ``keygen`` and ``publish``, the inbox, and the status socket.
The daemons do not know that they are in a demo.
"""
