"""The chunk store: verified bytes on disk, and nothing else.

What lives here, from the disk up: ``syscalls`` (the kernel's calls that Python lacks), ``disk`` (the port at which
faults are injected), ``durable`` (its body: every rename and sync of the program), ``layout`` (the path of everything),
``journal`` (which chunks are verified, as bytes), ``ledger`` (that journal as a file), ``handles`` (open files),
``replica`` (one model's copy), ``context`` (what all of the following work with), ``whole_sync`` and ``names`` (what a
sync of files alone leaves out), ``claims`` (taking back what the journal says), ``windows`` (what is written and not
yet durable), ``recovery``, ``repair``, ``reuse``, ``publishing``, ``scrub``, ``condition``, ``maintenance``, ``models``
and ``chunk_store``, the door.

The order of writes, and what a crash leaves, is described in ``windows``; what a start makes of it in ``recovery``. Two
rules that a review found broken in twenty places: a step that was refused is never taken as done by its repetition,
and a claim goes before what it claims may change.
"""
