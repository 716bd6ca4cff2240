"""The control plane: authenticated words between nodes, and between clients and nodes, over ZeroMQ CURVE.

``plane.ControlPlane`` is the front. Behind it: ``listener`` (the socket that is bound), ``dialer`` (the socket that
dials), ``authenticator`` (who may enter), ``subscription`` (which peers' news we follow, and whether any went missing),
``self_check`` (are strangers refused), ``trigger_server`` and ``trigger_client`` (the two ends of ``gossipd trigger``).
"""
