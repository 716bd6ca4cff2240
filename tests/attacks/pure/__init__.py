"""Parts of gossipd without its processes, each with a state that can be compared and counters of what was refused."""
