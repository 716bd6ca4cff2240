"""Manifests: unsigned, by others, hostile paths and names, layouts that do not fit, versions that go back.

Each builder gives the bytes of a file that is dropped into the inbox. Most are signed by the publisher that all hosts
trust: a publisher may be careless or robbed.
"""

from __future__ import annotations

from typing import Any

import msgpack

from gossipd.identity.keys import SecretKey
from gossipd.manifest.envelope import seal
from gossipd.manifest.manifest import ENVELOPE_TYPE
from tests.attacks.stage import Stage
from tests.gossipd.manifest.making import CHUNK, fake_digests, payload_fields

_MODEL = {"name": "org/attack", "version": 7}
_TREES = {"deep": 31, "wide": 1}


def _signed(stage: Stage, payload: bytes, *secrets: SecretKey) -> bytes:
    return seal(ENVELOPE_TYPE, payload, secrets or (stage.publisher,))


def _payload(schema: int = 1, **changes: Any) -> bytes:
    packed: bytes = msgpack.packb(payload_fields(**(_MODEL | changes)), use_bin_type=True)
    return bytes([schema]) + packed


def paths(stage: Stage, paths: list[str]) -> bytes:
    """Files of one byte at these paths."""
    return _signed(stage, _payload(files=[[path, 1, 0o644] for path in paths], hashes=fake_digests(1)))


def repeated_path(stage: Stage, part: str, times: int, joint: str = "") -> bytes:
    """A file whose path is long."""
    return paths(stage, [joint.join([part] * times)])


def tree(stage: Stage, files: int, depth: int) -> bytes:
    """So many files, each in a chain of directories of its own."""
    chain = "/d" * (depth - 1)
    return paths(stage, [f"{number}{chain}/f" for number in range(files)])


def fields(stage: Stage, **changes: Any) -> bytes:
    """A good manifest with some fields changed."""
    return _signed(stage, _payload(**changes))


def file_of(stage: Stage, size: int, mode: int = 0o644, chunk: int = CHUNK) -> bytes:
    """One file of that size and mode, with the hashes of another."""
    return _signed(stage, _payload(files=[["a", size, mode]], chunk=chunk))


def hashes(stage: Stage, count: int, cut: int = 0) -> bytes:
    """Hashes too many, too few, or cut short."""
    digests = fake_digests(count)
    return _signed(stage, _payload(hashes=digests[: len(digests) - cut]))


def root(stage: Stage, size: int) -> bytes:
    """A root that is none, or that of other content."""
    return _signed(stage, _payload(root=bytes(size)))


def spliced(stage: Stage) -> bytes:
    """Hashes of one version under the root of another."""
    good = payload_fields(**_MODEL)
    return _signed(stage, _payload(hashes=fake_digests(3, b"other"), root=good["root"]))


def schema(stage: Stage, number: int) -> bytes:
    """A schema that is unknown."""
    return _signed(stage, _payload(schema=number))


def envelope(stage: Stage, first: int = 1, kind: str = ENVELOPE_TYPE, signatures: int = 1) -> bytes:
    """An envelope of another format or type, or with another count of signatures than it has."""
    good = seal(kind, _payload(), (stage.publisher,))
    at = 2 + len(kind)
    return bytes([first]) + good[1:at] + bytes([signatures]) + good[at + 1 :]


def unsigned(stage: Stage) -> bytes:
    """No signature at all."""
    at = 2 + len(ENVELOPE_TYPE)
    good = _signed(stage, _payload())
    return good[:at] + b"\0" + good[at + 81 :]


def signed_by(stage: Stage, who: str) -> bytes:
    """By a stranger, by a member with its host key, or twice by one key."""
    if who == "twice":
        return _signed(stage, _payload(), stage.publisher, stage.publisher)
    return _signed(stage, _payload(), SecretKey(stage.fresh()) if who == "stranger" else stage.liar_secret)


def retyped(stage: Stage) -> bytes:
    """A signature that was made for a document of another type."""
    return seal("gossipd-channel-", _payload(), (stage.publisher,)).replace(
        b"gossipd-channel-", ENVELOPE_TYPE.encode(), 1
    )


def altered(stage: Stage, at: int) -> bytes:
    """One bit changed after it was signed."""
    good = bytearray(_signed(stage, _payload()))
    good[at] ^= 1
    return bytes(good)


def packed(stage: Stage, wire: str, times: int = 1) -> bytes:
    """A payload of these bytes (hex), repeated, signed well."""
    return _signed(stage, b"\x01" + bytes.fromhex(wire) * times)


def many(stage: Stage, what: str, count: int) -> bytes:
    """Too many sources, racks, patterns or files."""
    value = {"sources": "https://a/", "racks": "r", "names": "n"}.get(what)
    if value is not None:
        return _signed(stage, _payload(**dict[str, Any]({what: [value] * count})))
    return paths(stage, [f"f{number}" for number in range(count)])


def of_the_known_model(stage: Stage, version: int, salt: str = "x") -> bytes:
    """A version of the deployed model's name, with other content."""
    digests = fake_digests(3, salt.encode())
    return _signed(stage, _payload(name=stage.model, version=version, hashes=digests))


def by_the_trainer(stage: Stage, name: str, with_publisher: str = "") -> bytes:
    """Signed with a key that all hosts trust for other names; beside it, a signature that does not fit."""
    payload = _payload(name=name)
    if not with_publisher:
        return _signed(stage, payload, stage.trainer)
    other = _signed(stage, _payload(name=name, version=8), stage.publisher)
    signatures = {"of another": other, "of a stranger": _signed(stage, payload, SecretKey(stage.fresh()))}[
        with_publisher
    ]
    at = 3 + len(ENVELOPE_TYPE)
    good = _signed(stage, payload, stage.trainer)
    return good[: at - 1] + b"\2" + good[at : at + 80] + signatures[at : at + 80] + good[at + 80 :]
