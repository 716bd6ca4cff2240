"""SWIM membership that stays right under load, loss, cuts and churn. Stands alone: never imports gossipd.

* The brain: ``swim`` (the entry), ``node`` (the shared state), ``item_dispatcher`` (what a datagram holds),
  ``gossip_rounds``; ``runtime`` runs it under trio
* Values: ``member``, ``record``, ``events``, ``settings``, ``errors``, ``host_rules``, ``credentials``
* Who is alive: ``prober``, ``pings``, ``indirect_prober`` (for others), ``dead_prober``, ``judge`` (suspected, dead),
  ``suspicion`` (one suspicion), ``health``, ``isolation``
* Who belongs: ``roster``, ``joiner``, ``record_merger``, ``forgets`` and ``tombstones``
* How views become equal: ``rumours``, ``synchroniser`` (asks), ``sync_server`` (answers), ``sync_rows``, ``digest``,
  ``event_store`` (application events), ``progress_versions`` (which are new), ``writer_counts`` (whose give way)
* The wire: ``wire`` (bytes), ``seal``, ``replay``, ``verified_cache``
* Bounds against others: ``bounds``, ``forgeries``, ``shares``, ``reachability``, ``unsealed_rate``, ``socket_filter``
* For simulators: ``simulation`` (virtual time), ``fakes``

Read ``member`` and ``events`` first, then ``swim``.
"""
