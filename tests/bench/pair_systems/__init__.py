"""The systems that ``tests.bench.pair`` sets side by side, each as a sending and a receiving process.

A system is a module with ``send(plan)`` and ``receive(plan)``, run as ``python -m tests.bench.pair_systems.NAME
send|receive PLAN``; ``endpoint`` has what they share: the plan, the start signal, and what a process has used.
"""
