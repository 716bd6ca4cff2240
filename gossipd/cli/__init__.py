"""The commands. ``main`` has their names and imports a command only when it is called, so that ``status`` starts
quickly. ``options``, ``simulate_options`` and ``simulated_figures`` are shared; every other module is one or two
commands.
"""
