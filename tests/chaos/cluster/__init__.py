"""Chaos with real daemons: hosts in network namespaces, storage behind them, faults while a model arrives.

``python -m tests.chaos.cluster`` is the command (``__main__``). What happens when is drawn from a seed
(``schedule``), done by ``trouble``, and judged from outside the daemons' processes by ``oracle``. Corruption on the
way is a program of its own (``proxy``), which stands in front of a daemon's bulk port.
"""
