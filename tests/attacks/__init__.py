"""Named attacks: what a stranger, a member that lies, a local user, a publisher or a storage server can say to a host.

What lives here: the list of attacks (``corpus.toml``), their makers (``builders``), the parts of gossipd that they are
said to (``pure``), a cluster of real daemons that they are said to (``real``), and the verdicts. What does not: random
input (``tests.fuzz``), faults without ill will (``tests.chaos``).
"""
