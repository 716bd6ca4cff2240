"""The swarm brain: which chunk this host fetches from which peer, and what it reads from storage. Pure.

* The brain: ``planner`` (all deployments), ``deployment_swarm`` (one of them), ``open_deployments`` (which of them the
  planner looks at), ``maintenance`` (what is looked at a few times a second), ``link_times`` (waits and windows),
  ``surroundings`` (what deployments share), ``settings``, ``statistics``
* Which chunk of whom: ``demand`` (chunks that may be asked for), ``scheduler`` (the holder), ``peers`` (who is asked at
  all), ``unheard_members`` (who may be made up), ``availability`` (who holds what), ``doubt`` (what counts of liars'
  claims), ``local_replica`` (what is here), ``hedging``, ``endings`` and ``pipelining``,
  ``import_window``
* Who does what: ``roles``, ``class_roles`` and ``interests`` (where hosts want parts), ``rendezvous`` (the hashing),
  ``slow_hosts``, ``arrival_rates``, ``bandwidth_meter``, ``capabilities`` (what a member says of itself)
* Storage: ``seed_election`` (who reads for a rack), ``reading_start`` (from when on), ``source_read_planner`` (which
  piece), ``extent_order`` (in which order), ``inherited_share`` (what another owned before), ``read_window`` (how much
  at once), ``reading_turn``, ``stand_in`` (who reads when the seeds do not), ``extra_reader`` (who reads besides seeds
  with slow links), ``origins`` (where no storage has it) and ``first_copies`` (what an origin refuses)
* What is told and heard: ``announcements``, ``neighbour_subscriptions``, ``standing_links``, ``stall_detector``

What does not live here: the events and commands (``core.events``), and every byte.
"""
