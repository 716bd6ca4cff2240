"""Every time, rate and count of reading external storage, with its reason."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Limits of one host's reads from external storage. Times in seconds, sizes in bytes.

    Args:
        connect_timeout_s: for one TCP and TLS set-up. 5 is obstore's own default.
        read_timeout_s: silence that ends a request. 10 keeps "hangs" reported within 15 s (fault F36) and is
            twenty times what S3 needs for a first byte.
        rate_bytes_min: a request slower than this is given up; 64 KiB/s is the progress rule for all connections.
        rate_grace_s: how long a request may wait for bytes before that rule applies.
        request_timeout_s: obstore's limit for a whole request. The two rules above end bad ones much sooner; it is
            only there because obstore's default of 30 s would cut a throttled read.
        range_bytes_max: adjacent chunks of one file are read by one request up to this size; 16 MiB is where S3's
            time to the first byte (some 30 ms) is under a tenth of the transfer at 0.4 Gbit/s.
        whole_rate_bytes_min: a host whose last answer came at this rate at least is read in whole ranges: obstore
            collects them without our seeing the pieces, which saves a fifth of the CPU time. 8 MiB/s is 128 times the
            least rate, and two seconds for the longest range.
        whole_timeout_s: for a whole range; after that the host is read in pieces again. Bounds a host that turns slow.
        touch_bytes_max: a range up to this size is read by the request that first looks at an object; longer ones
            by obstore after a one-byte look.
        backoff_first_s, backoff_max_s: the wait after the first failure and the longest, doubled in between and
            drawn between half and the whole of it.
        retry_after_max_s: a server that asks for a longer pause is asked again after this.
        patience_s: the longest that one read waits, all pauses together, before it fails and the planner decides.
        retry_share, retry_reserve: repeated requests per good one, and how many may be saved up: a tenth, as in
            the fault table (F33), so that a failing source is not asked more by those it fails.
        refusal_remembered_s: an address that refused (not found, no right, forbidden, changed) is not asked again
            for this long, so that a wrong manifest costs a source a request now and then.
        admission_s: the resolved addresses of a host are checked against ``sources.allow`` this often.
        stores_max: open clients, each with its pool of connections.
    """

    connect_timeout_s: float = 5.0
    read_timeout_s: float = 10.0
    rate_bytes_min: int = 64 * 1024
    rate_grace_s: float = 5.0
    request_timeout_s: float = 3600.0
    range_bytes_max: int = 16 * MIB
    whole_rate_bytes_min: int = 8 * MIB
    whole_timeout_s: float = 12.0
    touch_bytes_max: int = 64 * 1024
    backoff_first_s: float = 0.2
    backoff_max_s: float = 20.0
    retry_after_max_s: float = 60.0
    patience_s: float = 60.0
    retry_share: float = 0.1
    retry_reserve: float = 10.0
    refusal_remembered_s: float = 30.0
    admission_s: float = 30.0
    stores_max: int = 64
