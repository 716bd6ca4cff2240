"""The wind tunnel: many planners on one virtual clock, with links that are shared max-min fair.

``scenario`` says what is simulated, ``fabric`` shares the links, ``world`` is the heap of events, ``host`` is
one host around the daemon's own Planner, ``membership`` runs the daemon's own Swim for each (``verdicts`` are drawn
where it does not), ``message_size`` and ``steady_traffic`` say what control costs, ``outcome`` is what came of it,
``closed_form`` are the rival strategies, ``plot`` draws (and alone may touch files).
"""
