"""What two hosts have told each other about deployments over control connections: the fourth pure brain.

What lives here, from the bottom up: ``settings``; ``subscription`` (ours at peers) and ``subscribers`` (peers' with
us); ``send_queue``, ``peer_channel`` and ``failed_peers``, by peer; ``events``; ``channel_table`` and ``exchange``; and
``sessions``, the brain. What does not: sockets (``gossipd.control``) and any rule about chunks (the planner).
"""
