"""Copies of models on this disk: found, recovered, published, scrubbed, removed.

* What all parts share: ``context``, ``layout`` (all paths), ``replica`` (one model in memory), ``models`` (the open
  ones)
* Where bytes lie: ``placement``, ``reading``, ``reuse`` (copies of other versions); of a part ``part_note``,
  ``showing``, ``holes``
* The life of a copy: ``catalogue`` (what is found), ``publishing``, ``name_syncs``, ``repair``, ``eviction``, ``pins``
* Which version users find: ``version_choice``, ``current_link``; ``known_links`` (what was found last)
* In the background: ``background`` (the threads), ``upkeep`` (what is due), ``scrub``,
  ``removed_files``, ``warming``
"""
