"""The disk as a port: every rename, sync and open file of the program, and the state of the disk."""
