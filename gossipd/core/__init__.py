"""Values and decisions: no clock, no chance, no I/O, no payload bytes.

Floors: ``errors``, ``ids`` (words); ``chunkset``, ``manifest``, ``events`` and the other values;
``planner`` and what it owns (decisions). See ``tests/test_house.py`` for the rules.
"""
