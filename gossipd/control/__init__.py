"""The control plane: authenticated messages between nodes, and between clients and nodes, over ZeroMQ CURVE.

``control_plane.ControlPlane`` is the front. Behind it: ``listener`` (the socket that is bound), ``dialer`` (the socket
that dials), ``authenticator`` (which keys are let in), ``accept_limit`` (how many connections), ``monitor_report``
(what libzmq tells of a socket), ``dispatcher`` (frames in), ``session_driver`` (drives the sessions), ``requests``
(what waits for a reply), ``self_check`` (strangers are refused), ``trigger_server`` and ``trigger_client`` (the two
ends of ``gossipd trigger``), ``delegate`` (what is asked of the daemon), ``settings``.
"""
