"""Every time, rate and count of reading external storage, with its reason."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

MIB = 1024 * 1024
Clock = Callable[[], float]


class SourceSettings(Struct, frozen=True):
    """Limits of one host's reads from external storage. Times in seconds, sizes in bytes.

    Args:
        connect_timeout_s: for TCP and TLS set-up. 5 is obstore's own default.
        read_timeout_s: silence that ends a request. 10 reports a hang within 15 s (fault F36) and is twenty times what
            S3 needs for a first byte.
        rate_bytes_min: slower requests are given up; 64 KiB/s is the rule for all connections.
        rate_alone_bytes_min: the same for the only request to a host that is too slow for two, where no other mirror is
            left. Eight seeds that share a link of 1 Mbit/s have twice as much each.
        rate_grace_s: how long a request may wait for bytes before that rule applies.
        request_timeout_s: obstore's limit for a whole request. The rules above end bad requests sooner; obstore's
            default of 30 s would cut a throttled read.
        range_bytes_max: adjacent chunks of one file share a request up to this size. At 16 MiB S3's time to the first
            byte (some 30 ms) is under a tenth of the transfer at 0.4 Gbit/s.
        whole_rate_bytes_min: a host at this rate or faster is read in whole ranges, which saves CPU time. 8 MiB/s is
            128 times the least rate, and two seconds for the longest range.
        whole_timeout_s: for a whole range; bounds a host that turns slow. Afterwards it is read in pieces again.
        touch_bytes_max: a range up to this size is read by the first request to an object; longer ones by obstore after
            a first request for one byte.
        whole_file_bytes_max: files up to this size are read from servers without ranges, which send all that comes
            before a range for each range. A file of one longest range costs its own bytes.
        backoff_first_s, backoff_max_s: the pause after the first failure, and the longest; doubled in between and drawn
            between half and the whole.
        retry_after_max_s: the longest pause that a server can ask for.
        patience_s: the longest wait of one read, all pauses together; then it fails and the planner decides.
        retry_share, retry_reserve: repeats per good request, and how many may be saved up. A source that fails a third
            of its requests needs half a repeat for each good one; beyond, it is left to the planner's pauses.
        refusal_remembered_s: an object that refused (missing, no access, forbidden, changed) is left alone for this
            long, so that a wrong manifest costs a source few requests.
        wrong_pause_first_s, wrong_pause_max_s: the pause before a chunk whose bytes were wrong is read again; doubled
            in between. In its first hour it costs twelve times its length, then once an hour; the longest is also how
            late a repair is noticed where the object's tag and date do not tell.
        admission_s: how often a host is resolved and checked against ``sources.allow``.
        connections: requests at once, of all reads together; packed chunks use what the reading threads leave.
        stores_max: open clients, each with its pool of connections.
    """

    connect_timeout_s: float = 5.0
    read_timeout_s: float = 10.0
    rate_bytes_min: int = 64 * 1024
    rate_alone_bytes_min: int = 8 * 1024
    rate_grace_s: float = 5.0
    request_timeout_s: float = 3600.0
    range_bytes_max: int = 16 * MIB
    whole_rate_bytes_min: int = 8 * MIB
    whole_timeout_s: float = 12.0
    touch_bytes_max: int = 64 * 1024
    whole_file_bytes_max: int = 16 * MIB
    backoff_first_s: float = 0.2
    backoff_max_s: float = 20.0
    retry_after_max_s: float = 60.0
    patience_s: float = 60.0
    retry_share: float = 0.6
    retry_reserve: float = 10.0
    refusal_remembered_s: float = 30.0
    wrong_pause_first_s: float = 1.0
    wrong_pause_max_s: float = 3600.0
    admission_s: float = 30.0
    connections: int = 8
    stores_max: int = 64
