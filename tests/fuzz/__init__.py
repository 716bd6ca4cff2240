"""Hostile input for every door through which bytes come in, by a small mutation fuzzer.

``python -m tests.fuzz --seconds N --json`` runs it; a small, repeatable part of each door runs with the tests.
"""
