"""Bulk connections: handshakes of strangers, requests that name what they must not, requests without end.

Each builder gives what one connection says, in order, and as whom.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gossipd.core.ids import DeploymentId
from gossipd.wire.transfer import BulkVerb, Request, hello
from tests.attacks.stage import Stage

_REQUEST = struct.Struct("!BBHII32s")
_VERBS = {"chunk": BulkVerb.CHUNK, "manifest": BulkVerb.MANIFEST, "complain": BulkVerb.COMPLAIN}


@dataclass(frozen=True, slots=True)
class Said:
    """``who``: member, stranger (of the cluster, no member), foreign (of another cluster), nobody (no TLS at all)."""

    who: str
    words: bytes
    times: int = 1


@dataclass(frozen=True, slots=True)
class Idle:
    """``each`` connections of each of so many hosts, members or not, that ask for at most one thing and stay."""

    hosts: int
    each: int
    are_members: bool


def request(
    stage: Stage, *, verb: str = "chunk", chunk: int = 0, length: int = 0, about: str = "known", who: str = "member",
    times: int = 1,
) -> Said:  # fmt: skip
    """A well-formed request for what is not there, or too often for what is."""
    deployment = {
        "known": stage.deployment, "others": stage.for_others, "new": DeploymentId(stage.fresh()),
        "zeros": DeploymentId(bytes(32)), "path": DeploymentId(b"../../../../etc/passwd".ljust(32, b"\0")),
    }[about]  # fmt: skip
    return Said(who, Request(_VERBS[verb], deployment, chunk, length).to_wire(), times)


def head(stage: Stage, version: int = 1, verb: int = 1, zero: int = 0) -> Said:
    """A request with a field that is unknown."""
    return Said("member", _REQUEST.pack(version, verb, zero, 0, 100, stage.deployment))


def clear_text(stage: Stage, words: str, size: int = 0) -> Said:
    """What is no TLS: another protocol, noise, or our own words in clear with a token made up."""
    told = {
        "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "token": hello(bytes(32)), "zeros": bytes(36),
        "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    }[words]  # fmt: skip
    return Said("nobody", told + stage.fresh(64) * (size // 64))


def idle(_stage: Stage, *, hosts: int, each: int, are_members: bool = True) -> Idle:
    """Connections that fill the port and do nothing."""
    return Idle(hosts, each, are_members)
