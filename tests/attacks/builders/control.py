"""The control port: frames that are none, messages that may not come from there, news that cannot be true.

Each builder gives frames, and as whom they are said: ``liar`` (a member), ``client`` (a listed key), ``nobody`` (a key
of no member), ``link`` (a reply on a connection that the host itself has dialed).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack

from gossipd.core.chunkset import ChunkSet
from gossipd.core.ids import DeploymentId
from gossipd.wire import control
from gossipd.wire.control_frame import FRAME_BYTES_MAX, encode
from tests.attacks.stage import Stage


@dataclass(frozen=True, slots=True)
class Frames:
    """Said one after the other on one connection."""

    who: str
    frames: tuple[bytes, ...]


def raw(stage: Stage, wire: str, times: int = 1, who: str = "liar") -> Frames:
    """Bytes (hex), repeated within one frame."""
    return Frames(who, (bytes.fromhex(wire) * times,))


def fields(stage: Stage, fields: list[Any], who: str = "liar") -> Frames:
    """A frame of these items, packed well."""
    return Frames(who, (b"\x01" + msgpack.packb(fields),))


def too_long(stage: Stage) -> Frames:
    """A frame longer than any message."""
    return Frames("liar", (b"\x01" + bytes(FRAME_BYTES_MAX),))


def holdings(stage: Stage, chunk_count: int = 0, chunks: str = "ff", about: str = "known") -> Frames:
    """Holdings of another number of chunks, or of chunks that there are not."""
    deployment = stage.deployment if about == "known" else DeploymentId(stage.fresh())
    message = control.Holdings(deployment, 7, chunk_count or _CHUNKS, bytes.fromhex(chunks), 4)
    return Frames("liar", (encode(message),))


def delta_after_holdings(stage: Stage, added: list[int]) -> Frames:
    """Good holdings, and then news about chunks that there are not."""
    whole = control.Holdings(stage.deployment, 7, _CHUNKS, ChunkSet.of(_CHUNKS, (0,)).to_wire(), 4)
    return Frames("liar", (encode(whole, number=1), encode(control.Delta(7, tuple(added), (), (), 4), number=2)))


def message(stage: Stage, kind: str, who: str = "liar", times: int = 1) -> Frames:
    """A message from somebody who may not send it, or too often."""
    made: dict[str, control.Message] = {
        "pong": control.Pong(), "token": control.Token(bytes(32), 10), "refused": control.Refused("E_BUSY"),
        "ping": control.Ping(), "subscribe": control.Subscribe(stage.deployment), "token_wanted": control.TokenWanted(),
        "kept": control.PartKept(300), "state": control.TriggerState(stage.deployment, 3, "deploy", 900),
        "holdings": control.Holdings(stage.deployment, 7, _CHUNKS, _ONE_CHUNK, 4), "hello": control.Hello("gossipd"),
        "subscribe_for_others": control.Subscribe(stage.for_others),
        "holdings_for_others": control.Holdings(stage.for_others, 7, _CHUNKS, b"\x01", 4),
    }  # fmt: skip
    return Frames(who, tuple(encode(made[kind], number=number + 1) for number in range(times)))


_CHUNKS = 600
_ONE_CHUNK = ChunkSet.of(_CHUNKS, (0,)).to_wire()
