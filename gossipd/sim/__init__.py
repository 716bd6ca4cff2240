"""The wind tunnel: many planners on one virtual clock, with links that are shared max-min fair.

``scenario`` says what is simulated, ``fabric`` shares the links, ``world`` is the heap of events, ``sim_host`` is
one host around the daemon's own Planner, ``outcome`` is what came of it, ``closed_form`` are the rival
strategies, ``plot`` draws (and alone may touch files).
"""
