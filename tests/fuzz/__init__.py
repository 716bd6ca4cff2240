"""Hostile input for every surface through which bytes come in, by a small mutation fuzzer.

``python -m tests.fuzz --seconds N --json`` runs it; a small, repeatable part of each surface runs with the tests.
"""
