"""The deployment brain: what is said about deployments, and how far each is on this host. Pure.

* The brain: ``brain`` passes each event to the part that it concerns, ``events`` and ``commands``, ``context`` (what
  all parts share)
* One host's deployments: ``deployment_table``, ``deployment_steps`` (the steps of one), ``states`` (their tables),
  ``deployment_record``, ``lost_chunks``, ``ended_manifests`` and
  ``restored_versions`` (of earlier runs), ``pull_turns`` and
  ``manifest_holders`` (whom a manifest is asked of), ``current_versions``
* What is said: ``statement``, ``statement_store`` (what is believed), ``statement_rules``, ``statement_file``,
  ``unproven`` (before the manifest is here), ``dissemination`` (between hosts), ``orders`` (of operators)
* Who deployed it: ``deployer`` (as far as one host knows), ``told_deployers``
* How far hosts are: ``progress_record``, ``signed_progress``, ``progress_table``, ``counters``, ``history``,
  ``end_time``, ``cluster_clock``
* Versions that go: ``supersession``, ``eviction_plan``; copies that come again: ``lost_copies``, ``copy_proofs``
* Reading of storage: ``source_budget``, ``ordered_budgets``, ``followed_budgets``, ``signed_budget``

What does not live here: the choice of chunks (``swarm``), and files (``store``, ``daemon``).
"""
