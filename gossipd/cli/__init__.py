"""The commands. ``main`` has their names and imports a command only when it is called, so that ``status`` starts
quickly. ``options``, ``quantities`` and ``figures`` are shared; every other module is one or two commands.
"""
