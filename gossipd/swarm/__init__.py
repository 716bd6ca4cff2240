"""The swarm brain: which chunk this host fetches from which peer, and what it reads from storage. Pure.

What lives here: ``planner`` (``handle(event, now)``, ``plan(now)``, ``drain()``, ``next_deadline(now)``) and its parts;
``deployment_swarm`` wires one deployment. What does not: the events and commands (``core.events``), and every byte.
"""
