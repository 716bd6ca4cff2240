"""Requests to the status socket of a host by a program that may connect: what is no request, no page, no order.

Each builder gives the bytes of one connection.
"""

from __future__ import annotations

import json
from typing import Any

from tests.attacks.stage import Stage

_HEAD = b"Host: d\r\n"


def line(stage: Stage, line: str, headers: str = "", header_bytes: int = 0, more: int = 0) -> bytes:
    """A request line and headers as they are, one of so many bytes, and so many bytes after them."""
    long = f"X: {'a' * header_bytes}\r\n" if header_bytes else ""
    return f"{line}\r\n".encode("latin-1") + _HEAD + f"{headers}{long}\r\n".encode("latin-1") + b"a" * more


def wire(stage: Stage, wire: str, times: int = 1) -> bytes:
    """Any bytes (hex)."""
    return bytes.fromhex(wire) * times


def order(stage: Stage, verb: str, fields: Any = None, text: str = "", times: int = 1) -> bytes:
    """An order with these fields, or with this text, repeated, for a body."""
    body = (text * times).encode() or json.dumps(fields).encode()
    return f"POST /v1/{verb} HTTP/1.1\r\n".encode() + _HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body


def page(stage: Stage, target: str) -> bytes:
    """A page that there is not."""
    return f"GET {target} HTTP/1.1\r\n".encode() + _HEAD + b"\r\n"
