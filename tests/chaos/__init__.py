"""Faults on the real thing: kills, refusals and power cuts of a real store on a real file system.

Each module is a command that prints its rows as JSON; a small part of each runs with the tests.
"""
