"""The swarm brain: which chunk this host fetches from which peer, and what it reads from storage. Pure.

``planner`` is the brain: ``handle(event, now)``, ``plan(now)``, ``drain()``, ``next_deadline(now)``.
``deployment_swarm`` wires one deployment. What does not live here: the words of the brain (``core.events``) and every
byte (``transfer``, ``sources``).
"""
