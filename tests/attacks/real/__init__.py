"""Four real daemons on loopback, and those that attack them over their sockets and directories."""
