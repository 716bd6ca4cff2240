"""The simulator: many planners on one virtual clock, with links that are shared max-min fair.

``scenario`` says what is simulated, ``fabric`` shares the links, ``world`` connects the hosts, ``host`` is one host
around the daemon's own Planner, ``membership`` runs the daemon's own Swim for each (``death_verdicts`` draws its
results where it does not run), ``traffic_model`` says what control costs, ``outcome`` is the result and ``course``
what each host went through, ``closed_form`` are the rival strategies, ``plot`` draws (and alone may touch files).
"""
