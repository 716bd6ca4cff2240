"""gossipd: one daemon per host, a model on every host in the time of one download.

The package is laid out in floors; imports point down (``tests/test_house.py`` holds the line):

* ``core``      values and decisions: manifests, chunk sets, planner, election, scheduler. Pure.
* ``store``, ``sources``, ``transfer``, ``control``, ``ops``   hands: they do I/O and decide nothing.
* ``daemon``    wires one brain to the hands; ``sim`` wires many brains to a virtual clock.
* ``cli``       the doors.

``membership`` is a package of its own beside this one and never imports it.
"""

__version__ = "0.1.0"
