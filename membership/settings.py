"""Every interval, limit and budget of the brain, each with its unit, range, source and trade.

One configuration serves every size and every scenario of the benchmark; formulas follow the number of members.
"""

from __future__ import annotations

from math import ceil, log10

from msgspec import Struct

from membership.errors import SettingsError


class SwimSettings(Struct, frozen=True):
    """The defaults are those of the benchmark."""

    # Seconds between probes. memberlist takes 1; half of that halves the detection time and costs some 440 B/s.
    probe_interval_s: float = 0.5
    # Whether probes leave at multiples of the interval on the host's clock, so that one wake-up serves a host that does
    # other things then. Only where the clocks of hosts have no common zero, or all probes fly at once; else the moment
    # is drawn.
    probe_on_clock: bool = False
    # Seconds. A local network answers within a millisecond, a descheduled process in 0.2 s (memberlist Local).
    probe_timeout_s: float = 0.2
    # Members asked to probe too, in racks other than ours and the subject's (SWIM and memberlist: 3).
    helper_count: int = 3
    # Local health multiplies interval and time-out by 1..8 (Lifeguard: 8); own timers that run late count, too.
    health_max: int = 8
    # Suspicion lasts base + per_decade * log10(members) seconds. A contradiction needs about 2 s to reach 1,000 members
    # (simulated); memberlist waits 4 * log10(members).
    suspicion_base_s: float = 1.5
    suspicion_per_decade_s: float = 0.8
    # A lone accuser waits this much longer (memberlist's suspicion_max_timeout_mult: 6).
    suspicion_lone_factor: float = 6.0
    # With two accusers the wait is this much longer than with four (Lifeguard's decay, K = 3).
    suspicion_pair_factor: float = 1.15
    # Rumours travel every 0.2 s to 3 members (memberlist LAN), and at once when they are about a death.
    gossip_interval_s: float = 0.2
    gossip_fanout: int = 3
    # A rumour is sent 1 + mult * log10(members + 1) times. memberlist's 4 doubles the bytes of a crash; the sums on the
    # next probes find a node that is missed.
    transmit_mult: float = 2.0
    # Bytes per second for rumours, by class. The first is for SWIM itself and doubles when its backlog is long; more
    # breaks the bound on the worst second of a node. The last binds from 40 hosts on: less makes progress stale.
    rumour_bytes_per_s: int = 3500
    statement_bytes_per_s: int = 3000
    progress_bytes_per_s: int = 9700
    # Bounds of what an application may put in.
    statement_count_max: int = 4096
    progress_count_max: int = 32768
    event_bytes_max: int = 512
    # Anti-entropy: pause between two sessions of one node, growing when a session brings nothing.
    sync_gap_s: float = 0.25
    sync_gap_max_s: float = 15.0
    # Both sides' views have been still for this long, and still differ: reconcile.
    settle_s: float = 1.5
    # Answering datagrams per second, and at once; four records fit into one.
    sync_datagrams_per_s: float = 250.0
    sync_datagrams_burst: float = 80.0
    # Dead members are tried one at a time, for ever.
    dead_probe_interval_s: float = 2.0
    # Joining: first retry, doubling up to the last.
    join_retry_s: float = 0.5
    join_retry_max_s: float = 8.0
    # Roster: seconds for which a dead member stays, and for which a forgotten one cannot come back by rumour.
    roster_keep_s: float = 14 * 86400.0
    tombstone_keep_s: float = 15 * 86400.0
    tombstone_count_max: int = 4096
    member_count_max: int = 20000
    # Isolation: share of the last probes outside the own rack that failed, and of how many different members.
    isolation_share: float = 0.6
    isolation_window: int = 10
    isolation_subjects_min: int = 3
    # Beyond plain SWIM; off only for comparison. Lifeguard: health, nacks, notices, rumours of a death at once.
    lifeguard: bool = True
    # Two accusers in two racks; helpers' testimony, disbelief, the last question, sums over the suspected on probes.
    corroborate: bool = True
    # A node that hears too few members passes no verdicts.
    isolation_freeze: bool = True
    # A ping without an answer is sent again, and the control channel is tried.
    second_try: bool = True

    def validate(self) -> None:
        """Raises SettingsError, naming the field, when a value is out of range."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, bool) and value <= 0:
                raise SettingsError(f"{name} must be above 0, not {value}")
        if self.probe_timeout_s * 2 >= self.probe_interval_s:
            raise SettingsError("probe_timeout_s must be under half of probe_interval_s: helpers need the other half")
        if self.helper_count > 8:
            raise SettingsError("helper_count must be at most 8")
        if not 0.5 <= self.isolation_share <= 1.0:
            raise SettingsError("isolation_share must be from 0.5 to 1")
        if self.event_bytes_max > 900:
            raise SettingsError("event_bytes_max must be at most 900: it has to fit into one datagram")

    def probe_s(self, due_s: float, *, early: float = 0.0) -> float:
        """When a probe leaves that is due: at once, or at the next moment ``probe_on_clock``; that may be ``early``, a
        share of the interval."""
        if not self.probe_on_clock:
            return due_s
        return ceil(due_s / self.probe_interval_s - early) * self.probe_interval_s

    def suspicion_s(self, members: int) -> float:
        """How long a well-corroborated suspicion lasts among ``members`` members."""
        return self.suspicion_base_s + self.suspicion_per_decade_s * log10(max(members, 10))

    def transmit_limit(self, members: int) -> int:
        """How often one node passes on one rumour."""
        return 1 + int(self.transmit_mult * log10(members + 1) + 0.999)
