"""The commands. ``main`` has their names and imports a command only when it is called, so that ``status`` starts
quickly.

* Shared by all: ``main``, ``options`` (arguments), ``layout`` (at the terminal), ``daemon_environment``, ``completion``
  and ``completion_program`` (of a shell), ``man``, ``help`` and ``manual_entries``, ``assets``, ``version``
* A host: ``init``, ``keygen``, ``key`` (rotation), ``config``, ``run``, ``demo``
* Publishing: ``publish``, ``sign``, ``show``, ``watch`` (steps of a run)
* Deployments: ``deploy``, ``trigger``, ``admin`` (cancel, pause, rm, roll back), ``wait``, ``why``, ``trust``, ``web``
* Models on this host: ``models``, ``latest``, ``verify``, ``eviction`` (pin, prune), ``warm``, ``want``
* What is going on: ``status``, ``live_status`` (redrawn), ``host_selection`` (which hosts are shown), ``sketches``,
  ``members``, ``events``, ``report``, ``top``, ``top_frame`` (its figures), ``audit``, ``traces``
* What is wrong: ``doctor``; ``host_readings``, ``disk_readings``, ``peer_readings``, ``storage_readings`` and
  ``source_trials`` (what it reads); ``support``
* Simulating: ``simulate``, ``simulate_options``, ``simulated_figures``, ``simulated_report``
"""
