"""Lets the kernel drop what a flood of strangers sends to a UDP socket, for as long as the flood lasts.

What lives here: the kernel's filter of a socket (``SO_ATTACH_FILTER`` in socket(7)). What does not: when a flood is one
(``unsealed_rate``), and the proof of a datagram (``seal``), which all that pass still need.

The filter compares the version and the key tag, which every datagram of the cluster bears in clear: noise and datagrams
of other clusters then cost no wake-up and no system call. Rejected: a rate limit by address, which a flood forges.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Collection, Sequence
from enum import IntEnum

_SO_ATTACH_FILTER, _SO_DETACH_FILTER, _SO_MEMINFO = 26, 27, 55
_MEMINFO = struct.Struct("=9I")  # the last one: datagrams that the kernel dropped, as it filtered them or had no room
_INSTRUCTION, _PROGRAM = struct.Struct("@HBBI"), struct.Struct("@HP")
_UDP_HEADER_BYTES = 8  # the filter sees it, and no IP header
_VERSION_AT, _TAG_AT = _UDP_HEADER_BYTES, _UDP_HEADER_BYTES + 1
_TAGS_MAX = 64  # a jump goes at most 255 instructions far
ALL = 0xFFFFFFFF
"""What a filter returns that lets all of a packet pass; 0 drops it."""

Step = tuple[int, int, int, int]
"""Of a program: operation, steps to skip when a comparison holds and when not, and a number."""


class Operation(IntEnum):
    """Of classic BPF, as far as it is used: ``struct sock_filter`` in linux/filter.h."""

    LOAD_WORD, LOAD_BYTE, LOAD_STORED, STORE = 0x20, 0x30, 0x60, 0x02
    AND, JUMP, JUMP_EQUAL, RETURN = 0x54, 0x05, 0x15, 0x06


def attach(sock: socket.socket, program: Sequence[Step]) -> None:
    """Set the kernel's filter of a socket, in place of the one before. Raises OSError."""
    code = b"".join(_INSTRUCTION.pack(*step) for step in program)
    buffer = ctypes.create_string_buffer(code)  # the kernel copies it within the call
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _PROGRAM.pack(len(program), ctypes.addressof(buffer)))


def detach(sock: socket.socket) -> None:
    """Let everything pass again. Raises OSError where there was no filter."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)


class SocketFilter:
    """The kernel's filter of one socket. Where the system has none, all datagrams come through, as without it."""

    def __init__(self, udp: socket.socket) -> None:
        self._udp = udp
        self._tags: tuple[bytes, ...] = ()
        self._dropped_before = 0

    def admit(self, version: int, tags: Collection[bytes]) -> None:
        """Only datagrams of this version with one of these key tags from now on."""
        wanted = tuple(tags)
        if wanted == self._tags or not 0 < len(wanted) <= _TAGS_MAX:
            return
        try:
            dropped = self._dropped()
            attach(self._udp, program(version, wanted))
        except OSError:
            return  # not a Linux with filters
        if not self._tags:
            self._dropped_before = dropped
        self._tags = wanted

    def admit_all(self) -> int:
        """End the filter. Returns how many datagrams the kernel dropped while it was on; 0 when it was off."""
        if not self._tags:
            return 0
        self._tags = ()
        detach(self._udp)
        return (self._dropped() - self._dropped_before) % 2**32

    def _dropped(self) -> int:
        told = self._udp.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        return int(_MEMINFO.unpack(told)[-1])


def program(version: int, tags: Collection[bytes]) -> list[Step]:
    """All of a datagram when its first byte is ``version`` and the four after it are one of ``tags``."""
    steps: list[Step] = [
        (Operation.LOAD_BYTE, 0, 0, _VERSION_AT),
        (Operation.JUMP_EQUAL, 0, len(tags) + 1, version),
        (Operation.LOAD_WORD, 0, 0, _TAG_AT),
    ]
    for left, tag in zip(range(len(tags), 0, -1), tags, strict=True):
        steps.append((Operation.JUMP_EQUAL, left, 0, int.from_bytes(tag)))
    return [*steps, (Operation.RETURN, 0, 0, 0), (Operation.RETURN, 0, 0, ALL)]
