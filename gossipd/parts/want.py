"""What a host says it wants of a model: terms, parsed once.

What lives here: the terms and their canonical text. What does not: a model (``part``).

A want is a union of terms; without any it is everything::

    files:GLOB                       whole files; ``*`` matches ``/`` too
    tensors:GLOB                     tensors by name; ``*`` matches ``.`` too
    ep:RANK/RANKS                    expert parallel: the rank's experts, and all that is no expert
    pp:FIRST-LAST                    pipeline parallel: these layers, counted from 0, LAST among them
    ranges:FILE:FROM-TO,FROM-TO...   bytes of one file, TO not among them: what a plan of torch DCP asks for

``ep:``, ``pp:`` and ``tensors:`` may be joined with ``&``: ``pp:0-15&ep:3/16`` are the rank's experts in these layers.
Terms that say the same in another order are one want. Rejected: exclusions, because a host that forgets one tensor
fails at load, and one that names too many only fetches more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from blake3 import blake3
from msgspec import Struct

from gossipd.core.errors import UsageError
from gossipd.manifest.errors import shown
from gossipd.manifest.strict_msgpack import INTEGER_MAX

TERMS_MAX = 1024
WANT_BYTES_MAX = 64 * 1024  # a plan of DCP names every range of a rank
RANKS_MAX = 65_536
_JOINED_MAX = 4
_RANK = re.compile(r"([0-9]{1,5})/([0-9]{1,5})\Z")
_SPAN = re.compile(r"([0-9]{1,16})-([0-9]{1,16})\Z")


class WantError(UsageError):
    """A want that cannot be read, or that means nothing in this model. Fault: the operator of this host. Retry:
    corrected; ``E_NO_INDEX``: with files, or when the model was published with an index of its tensors."""

    code = "E_WANT"


class Experts(Struct, frozen=True):
    """Rank ``rank`` of ``ranks``, from 0."""

    rank: int
    ranks: int


class Layers(Struct, frozen=True):
    """Layers ``first`` to ``last``, both among them."""

    first: int
    last: int


class TensorNames(Struct, frozen=True):
    """Tensors whose whole name matches."""

    glob: str


TensorRule: TypeAlias = Experts | Layers | TensorNames


class TensorsWanted(Struct, frozen=True):
    """The tensors that every rule admits."""

    rules: tuple[TensorRule, ...]


class FilesWanted(Struct, frozen=True):
    """Whole files whose path matches."""

    glob: str


class RangesWanted(Struct, frozen=True):
    """Bytes of one file: pairs of begin and end, ascending and apart."""

    path: str
    spans: tuple[tuple[int, int], ...]


Term: TypeAlias = TensorsWanted | FilesWanted | RangesWanted


@dataclass(frozen=True, slots=True)
class Want:
    """Parsed by ``parse_want``. Two wants with one ``text`` are the same."""

    text: str = ""
    """Canonical: the terms in order, one a line; empty: everything."""
    terms: tuple[Term, ...] = field(default=(), compare=False)

    @property
    def is_everything(self) -> bool:
        """Whether it leaves nothing out, whatever the model."""
        return not self.terms

    @property
    def mark(self) -> str:
        """Eight hexadecimal digits that name it on the disk."""
        return blake3(self.text.encode()).hexdigest()[:8]


EVERYTHING = Want()


def parse_want(texts: Iterable[str]) -> Want:
    """The want of these terms. Raises WantError, which names the term and the cure."""
    by_text: dict[str, Term] = {}
    for text in texts:
        one = _term(text.strip())
        by_text[text_of(one)] = one
        if len(by_text) > TERMS_MAX:
            raise WantError(f"a want has over {TERMS_MAX} terms; join them with a pattern")
    whole = "\n".join(sorted(by_text))
    if len(whole.encode()) > WANT_BYTES_MAX:
        raise WantError(f"a want has over {WANT_BYTES_MAX} bytes; join its terms with a pattern")
    return Want(whole, tuple(by_text[text] for text in sorted(by_text)))


def read_want(text: str) -> Want:
    """The want of a canonical text. Raises WantError."""
    return parse_want(text.split("\n")) if text else EVERYTHING


def both(one: Want, other: Want) -> Want:
    """What either wants. Raises WantError: together they are too long."""
    if one.is_everything or other.is_everything:
        return EVERYTHING
    return parse_want([*one.text.split("\n"), *other.text.split("\n")])


def _term(text: str) -> Term:
    kind, colon, rest = text.partition(":")
    if not colon or not rest or not text.isprintable():
        raise _refused(text, "is not KIND:VALUE, as in ep:3/16")
    if kind == "files":
        return FilesWanted(rest)
    if kind == "ranges":
        return _ranges(text, rest)
    rules = tuple(_rule(text, part) for part in text.split("&"))
    if len(rules) > _JOINED_MAX:
        raise _refused(text, f"joins over {_JOINED_MAX} rules")
    return TensorsWanted(rules)


def _rule(text: str, part: str) -> TensorRule:
    kind, _, rest = part.partition(":")
    if kind == "tensors" and rest:
        return TensorNames(rest)
    if kind == "ep":
        found = _RANK.match(rest)
        rank, ranks = map(int, found.groups()) if found else (1, 1)
        if not rank < ranks <= RANKS_MAX:
            raise _refused(text, "needs a rank below the number of ranks, as in ep:3/16")
        return Experts(rank, ranks)
    if kind == "pp":
        return Layers(*_span(text, rest, is_last_in=True))
    raise _refused(text, "is of no kind that is known: files, tensors, ep, pp, ranges")


def _ranges(text: str, rest: str) -> RangesWanted:
    path, _, listed = rest.rpartition(":")
    if not path:
        raise _refused(text, "needs a file and its ranges, as in ranges:a.distcp:0-4096")
    spans = sorted(_span(text, one, is_last_in=False) for one in listed.split(","))
    return RangesWanted(path, joined(spans))


def _span(text: str, span: str, *, is_last_in: bool) -> tuple[int, int]:
    found = _SPAN.match(span)
    begin, end = map(int, found.groups()) if found else (1, 0)
    if not (begin <= end if is_last_in else begin < end) or end > INTEGER_MAX:
        raise _refused(text, "needs a first and a last number, as in pp:0-15 and ranges:FILE:0-4096")
    return begin, end


def joined(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Ascending spans, with those that touch made one."""
    found: list[tuple[int, int]] = []
    for begin, end in spans:
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return tuple(found)


def text_of(term: Term) -> str:
    """The canonical text of one term."""
    match term:
        case FilesWanted(glob):
            return f"files:{glob}"
        case RangesWanted(path, spans):
            return f"ranges:{path}:" + ",".join(f"{begin}-{end}" for begin, end in spans)
        case TensorsWanted(rules):
            return "&".join(sorted({_rule_text(rule) for rule in rules}))


def _rule_text(rule: TensorRule) -> str:
    match rule:
        case Experts(rank, ranks):
            return f"ep:{rank}/{ranks}"
        case Layers(first, last):
            return f"pp:{first}-{last}"
        case TensorNames(glob):
            return f"tensors:{glob}"


def _refused(text: str, says: str) -> WantError:
    return WantError(f"want {shown(text)} {says}")
