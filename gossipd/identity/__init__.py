"""The identity of hosts, publishers and clients: keys, the cluster's secret, certificates and trust.

What lives here: key values and the files that hold them. What does not: admission of a connection (``control``,
``transfer``) and what a publisher signs (``manifest``).
"""
