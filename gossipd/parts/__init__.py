"""Words: which part of a model a host wants, and what of it may be shown. Pure functions of a manifest and a text.

What lives here: wants, the chunks they mean, headers that list only what is there. What does not: where a want is said
(``daemon``), what is fetched (``swarm``), what is on the disk (``store``).
"""
