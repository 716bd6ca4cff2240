"""The chunk store: verified bytes on disk, and nothing else.

``chunk_store`` is the interface for all callers, with ``errors``, ``notices``, ``settings`` and ``statistics``;
``clock`` is the time, and ``hub_cache`` shows models as a cache of the Hugging Face Hub. Beneath it:

* ``disk``: ``syscalls`` (kernel calls that Python lacks), ``disk`` (the port at which tests inject faults),
  ``posix_disk`` (the real disk behind the port), ``handles`` (open files), ``whole_sync`` (syncs of the file system),
  ``condition`` (whether the disk takes writes), ``waiting_calls`` (whether it answers), ``file_system`` (which file
  systems can hold a store), ``root_place`` (whether users find the store);
* ``journal``: ``journal`` (the format), ``ledger`` (the journal as a file), ``windows`` (the order of
  writes), ``claims`` (taking claims back), ``recovery`` (what a start makes of the disk);
* ``models``: ``layout`` (all paths), ``catalogue`` (what is on the disk), ``context`` (what all parts share),
  ``replica`` (the books of one model), ``models`` (the open ones), ``name_syncs`` (durable directories),
  ``publishing``, ``current_link`` (which version users find), ``known_links`` (which they found), ``reading``,
  ``reuse`` (copies from other versions), ``repair``, ``scrub``, ``upkeep`` and ``background`` (what is due, and the
  threads).

Two rules hold everywhere: repeating a step that failed does the whole step again, and a claim is taken back before the
bytes that it claims may change.
"""
