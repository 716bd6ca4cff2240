"""A large simulated cluster in which some hosts lie in every way that their keys allow, while models are delivered.

What lives here: the liars (``words``, ``host``), their world (``world``), and the command that measures what they
could do (``__main__``). What does not: the hosts' parts, which are those of the campaign (``tests.sim.campaign``).
"""
