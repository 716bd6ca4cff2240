"""What every adapter stands on: turns of the loop, threads, buffers, rates, sockets under trio.

What lives here: mechanisms that know nothing of models. What does not: decisions, and the adapters themselves.
"""
