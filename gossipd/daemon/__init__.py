"""The daemon: the brains wired to what moves bytes. Nothing here decides what a brain decides.

* Beginning and end: ``main`` (signals, exit codes), ``start_signals`` (those that come earlier), ``app`` (everything
  opened in order), ``slow_start`` (a directory that does not answer), ``self_checks``, ``leftovers`` (what the last run
  left), ``systemd``; ``alarms`` (also of bugs that stop the daemon)
* The planner: ``planner_driver`` (its turns), ``planner_executor`` (its commands), ``swarm_actions`` (deployments that
  open and close), ``rechecks`` (chunks read back), ``chunk_access`` (the store, for peers and sources), ``data_plane``
  (all that holds bytes), ``store_events``
* The deployment brain: ``deployment_driver``, ``deployment_executor``, ``manifest_judging`` (in a thread),
  ``cluster_roster`` (who belongs), ``triggers``, ``deploy_plan`` (a dry run), ``budget_check``, ``budget_orders``,
  ``rack_copies``, ``copy_checks`` and ``copies_watch`` (copies that a rack keeps)
* Ports that are closed: ``links_watch`` (the control port), ``unreached_peers`` (the bulk port)
* Membership: ``membership_host`` (the brain and what is published), ``member_directory`` (the members),
  ``unheard_words`` (what waits until its author speaks), ``unheard_asks`` (who is asked to), ``member_events`` (who
  hears of them), ``gossip_rules`` (what is believed), ``contacts`` (finding the cluster), ``identity_watch`` and
  ``identity_alarms``, ``loneliness``, ``clock_watch``, ``drift_watch``, ``audit_gossip``
* What hosts tell of themselves: ``progress_publisher``, ``free_space``, ``peer_wants``; ``sketch_sampler`` (keeps it)
* The control plane's questions: ``control_delegate``, ``fine_sketches`` (told to others, and asked of them)
* Settings: ``settings_mapping``, ``live_settings``, ``reloading``, ``scheduled_limits``, ``link_sharing``;
  ``start_limits``, ``limits_watch``, ``credentials_watch``
* The local sockets: ``status_view`` (answers), ``fresh_look`` (before some), ``settled_rows`` (rows that hold),
  ``admin_operations`` and ``want_orders`` (commands), ``event_feed``
* Jobs: ``job_publishing``, ``publishing_job``, ``publishing_turns`` (few at once), ``envelope_file`` (of an order),
  ``step_watches``, ``untold_shards``;
  ``hooks``, ``hook_queue`` and ``hook_program``, ``orphans`` (what they leave to process 1); ``hub_links``,
  ``process_end`` (of a job)
* The disk: ``state_dir`` and ``state_saver`` (what is kept besides chunks), ``watermarks`` (a disk that is too full),
  ``store_watch`` (what others did to it), ``store_calls`` (orders, while it answers or does not)
"""
