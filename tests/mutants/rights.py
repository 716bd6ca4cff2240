"""Bugs of what one member may have, be and ask: targets, identities, shares of this host's work, the audit log."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SERVER = "tests/gossipd/transfer/test_server_and_client.py"
_SESSIONS = "tests/gossipd/sessions/test_sessions.py"

MUTANTS = (
    Mutant(
        "serves-chunks-to-any-member",
        "A member that the manifest does not name gets chunks.",
        "gossipd/transfer/server.py",
        "        if not self._port.may_have(node, request.deployment):\n",
        "        if not self._port.is_member(node):\n",
        (_SERVER,),
    ),
    Mutant(
        "takes-every-member-for-a-target",
        "The bulk port is told that every member is a target.",
        "gossipd/daemon/data_plane.py",
        "self._directory.is_target(node, manifest.targets)",
        "self._directory.is_member(node)",
        ("tests/gossipd/daemon/test_data_plane.py",),
    ),
    Mutant(
        "judges-targets-by-name-alone",
        "A host of the right name in another rack is a target.",
        "gossipd/daemon/member_directory.py",
        "targets.include(name=record.name, rack=record.rack)",
        "targets.include(name=record.name, rack=next(iter(targets.racks), record.rack))",
        ("tests/gossipd/daemon/test_alarms.py",),
    ),
    Mutant(
        "tells-holdings-to-any-member",
        "A member that the manifest does not name hears who holds which chunk.",
        "gossipd/sessions/exchange.py",
        "        if not self._directory.is_target(peer, self._targets[deployment]):\n            self._counters",
        "        if not self._directory.endpoint_of(peer):\n            self._counters",
        (_SESSIONS,),
    ),
)
