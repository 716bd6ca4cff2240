"""What a publisher says about a version beside its content: lineage, labels, and which versions to keep.

What lives here: the rules of these fields. What does not: what ``keep`` decides (``retention``,
``deployment.supersession``), and the git facts that ``publish`` adds (``publish.git_facts``).

``about`` is the text of one JSON object, of at most 16 KiB, with any fields. It decides nothing but which parents stay
where ``keep`` asks for that; a reader only checks that it is such an object. These names have a meaning for people and
for ``gossipd lineage``: ``run``, ``attempt``, ``step``, ``parents`` (ids of deployments, 64 hexadecimal digits each),
``code`` (repo, commit, dirty), ``data``, ``config_digest``, ``seed``, ``frameworks``, ``metrics``, ``url``. It is text
because losses are not integers, and a manifest's MessagePack has no floating-point numbers.

Everybody who can read a manifest reads ``about``, so a publisher refuses what looks like a secret. A reader does not:
a rule that guesses must not decide on which hosts a version arrives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gossipd.core.lineage import PARENTS_MAX, is_id
from gossipd.core.versions import show_step, split_version
from gossipd.manifest.errors import ManifestError, shown
from gossipd.manifest.names import check_label
from gossipd.manifest.strict_msgpack import decoding

ABOUT_BYTES_MAX = 16 * 1024
LABELS_MAX = 64
LABEL_BYTES_MAX = 256
KEPT_MAX = 1_000_000
_WORDS_MAX = 60  # of a row
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORDS = frozenset({
    "password", "passwd", "pwd", "passphrase", "secret", "secrets", "credential", "credentials", "authorization",
    "cookie", "bearer", "apikey",
})  # fmt: skip
_SECRET_ENDS = (("token",), ("auth",), *((word, "key") for word in ("api", "access", "private", "secret", "signing")))
# What GitHub, GitLab, Hugging Face, OpenAI, AWS and Slack begin their tokens with; a PEM; a password in an address.
_SECRET_VALUE = re.compile(
    r"gh[pousr]_\w{20}|github_pat_|glpat-|hf_\w{20}|sk-\w{16}|AKIA[0-9A-Z]{12}|xox[abpr]-|-----BEGIN [A-Z ]*PRIVATE|"
    r"://[^/@\s:]*:[^/@\s]+@"
)


class Retention(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of a name's versions live are the ``last`` highest, those whose step is a multiple of ``every`` (0: none for
    that), and with ``parents`` those that live ones name as theirs in ``about``."""

    last: int
    every: int = 0
    parents: bool = False


def check_retention(keep: Retention) -> None:
    """Raises ManifestError ``E_LIMIT``."""
    if not 1 <= keep.last <= KEPT_MAX:
        raise ManifestError(f"keep.last={keep.last} must be from 1 to {KEPT_MAX}", code="E_LIMIT")
    if keep.every < 0:
        raise ManifestError(f"keep.every={keep.every} must be at least 0", code="E_LIMIT")


def check_labels(labels: Mapping[str, str]) -> None:
    """Raises ManifestError ``E_LIMIT`` or ``E_NAME``."""
    if len(labels) > LABELS_MAX:
        raise ManifestError(f"labels={len(labels)} max={LABELS_MAX}", code="E_LIMIT")
    for key, value in labels.items():
        check_label(key, "labels")
        if len(value.encode()) > LABEL_BYTES_MAX or not value.isprintable():
            raise ManifestError(
                f"labels[{shown(key)}] must be at most {LABEL_BYTES_MAX} bytes, all printable", code="E_NAME"
            )


def read_about(text: bytes | memoryview) -> dict[str, Any]:
    """The object; empty for no text. Raises ManifestError ``E_LIMIT`` or ``E_DECODE``."""
    if len(text) > ABOUT_BYTES_MAX:
        raise ManifestError(f"bytes of about={len(text)} max={ABOUT_BYTES_MAX}", code="E_LIMIT")
    if not len(text):
        return {}
    with decoding("about"):
        found = msgspec.json.decode(text)
    if not isinstance(found, dict):
        raise ManifestError("about must be one JSON object")
    return found


def pack_about(about: Mapping[str, Any]) -> bytes:
    """The text that a publisher signs, keys in order. Raises ManifestError ``E_SECRET``, ``E_DECODE``, ``E_LIMIT``."""
    for path, value in _leaves(about, ""):
        key = path.rpartition(".")[2]
        if _is_secret_name(key) or (isinstance(value, str) and _SECRET_VALUE.search(value)):
            raise ManifestError(
                f"about.{path} looks like a secret, and every host would be told; leave it out", code="E_SECRET"
            )
    parents = about.get("parents", [])
    if not isinstance(parents, list) or len(parents) > PARENTS_MAX or not all(map(is_id, parents)):
        raise ManifestError(
            f"about.parents must be at most {PARENTS_MAX} ids of deployments, 64 hexadecimal digits each"
        )
    text = msgspec.json.encode(about, order="deterministic") if about else b""
    read_about(text)
    return text


def step_label(version: int, about: Mapping[str, Any]) -> str:
    """``300.2`` where ``about`` names the step and attempt that the version is made of; else the version."""
    return show_step(version) if step_numbers(version, about) else str(version)


def step_numbers(version: int, about: Mapping[str, Any]) -> bool:
    """Whether ``about`` names the step and attempt that the version is made of."""
    return (about.get("step"), about.get("attempt", 0)) == split_version(version)


def lineage_words(about: Mapping[str, Any]) -> str:
    """The run and the step in a few words for a row of a table; empty when neither is named."""
    words = [f"{key} {about[key]}" for key in ("run", "step", "attempt") if isinstance(about.get(key), str | int)]
    text = ", ".join(words)
    return "".join(one if one.isprintable() else "?" for one in text)[:_WORDS_MAX]


def _is_secret_name(key: str) -> bool:
    words = tuple(word.lower() for word in _WORD.findall(key))
    return not _SECRET_WORDS.isdisjoint(words) or any(words[-len(end) :] == end for end in _SECRET_ENDS)


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Every value in maps and lists, maps themselves too, with the way to it."""
    if path:
        yield path, value
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, path)
