"""Where chunks of a file of tensors begin, so that an edit of the file leaves most of its chunks as they were. Pure.

What lives here: the rule, for the publisher, who knows the tensors, and for every host, which knows only the manifest's
*cuts*. What does not: reading headers (``publish.safetensors_header``), and chunks of files without cuts
(``chunk_layout``).

On a plain grid one byte more in a header moves every chunk behind it. So the grid begins again at each tensor. A file's
cuts are the lengths of its *stretches*, end to end: the header, each tensor of at least a margin (a sixteenth of a
chunk), each run of smaller tensors between them. From the cuts every host derives the same chunks:

* a chunk begins with each stretch and, in it, every ``chunk_bytes``, but not less than a margin before its end;
* a stretch under a margin joins the first chunk of the next one, so that a bias does not cost a request; the next
  stretch's other chunks begin where they would without it;
* the first stretch (the header) and the last stand for themselves, however small.

So a chunk has at most ``chunk_bytes`` and two margins, and a tensor of at least a margin has the same chunks in every
file, but for the first one, where another run of small tensors comes before it. Any cuts give some chunks: what a
publisher would not write costs its own model only, and small stretches in a row make chunks of a margin or more.

Rejected: borders by content (rolling hashes), because chunks of a few KiB come with them and no edit of weights is
caught better; hosts that parse headers, because a file format would then decide what a hash covers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

MARGIN_SHARE = 16  # a margin is this part of a chunk: an eighth more bytes in the longest chunk


def cuts_of(header_bytes: int, tensor_bytes: Iterable[int], chunk_bytes: int) -> tuple[int, ...]:
    """The cuts of one file: a header of at least a byte, then tensors of these lengths in order of offset, without
    gaps. Their sum is the file's size."""
    margin = chunk_bytes // MARGIN_SHARE
    cuts, run = [header_bytes], 0
    for length in tensor_bytes:
        if length < margin:
            run += length
            continue
        if run:
            cuts.append(run)
            run = 0
        cuts.append(length)
    if run:
        cuts.append(run)
    return tuple(cuts)


def chunk_begins(cuts: Sequence[int], chunk_bytes: int) -> array[int]:
    """The offset in the file at which each of its chunks begins, ascending from 0. ``cuts``: lengths of at least 1."""
    margin, last = chunk_bytes // MARGIN_SHARE, len(cuts) - 1
    begins: array[int] = array("Q")
    at = waiting = 0  # ``waiting``: bytes before ``at`` that no chunk has yet
    for position, length in enumerate(cuts):
        if 0 < position < last and length < margin:
            waiting += length
            at += length
            if waiting >= margin:
                begins.append(at - waiting)
                waiting = 0
            continue
        begins.append(at - waiting)
        waiting = 0
        begins.extend(range(at + chunk_bytes, at + length - margin + 1, chunk_bytes))
        at += length
    return begins
