"""The control plane: authenticated words between nodes, and between clients and nodes, over ZeroMQ CURVE.

``plane.ControlPlane`` is the front. Behind it: ``entrance`` (the socket that is bound), ``links`` (the socket that
dials), ``zap`` (who may enter), ``following`` (which peers' news we follow, and whether any went missing),
``self_check`` (are strangers refused), ``trigger_desk`` and ``trigger_client`` (the two ends of ``gossipd trigger``).
"""
