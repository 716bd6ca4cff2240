"""What ``gossipd doctor`` looks at, as one list: each check with its sentence and its cure.

What lives here: judging what was read of a host. What does not: reading it (``cli.host_readings``,
``cli.peer_readings``), and display. A check whose readings are missing, as no daemon runs, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from msgspec import Struct

from gossipd.core.reasons import HostReason, reason_of_code, reason_of_word
from gossipd.core.timing import CREDENTIAL_LEAST_S
from gossipd.core.units import percent_words, show_bytes, show_count
from gossipd.core.versions import label_words
from gossipd.diagnosis.drift import compare

FREE_LEAST_BYTES, FREE_LEAST_SHARE = 1 << 30, 0.05
INODES_LEAST = 1000
SYNC_SLOW_S, SYNC_HANGS_S = 0.1, 2.0
DESCRIPTORS_LEAST, DESCRIPTORS_ENOUGH = 1024, 8192
LOOP_LAG_MAX_S = 0.2
CLOCK_WARN_S, CLOCK_FAIL_S = 10.0, 60.0
UNCHECKED_MAX_S = 30 * 86400.0
_LET_IN = frozenset({
    "E_SOURCE_NOT_FOUND", "E_SOURCE_ARCHIVED", "E_SOURCE_RANGE", "E_SOURCE_LONG", "E_SOURCE_TRUNCATED",
    "E_SOURCE_WHOLE_ONLY", "E_SOURCE_NO_RANGES", "E_SOURCE_ENCODING",
})  # fmt: skip
"""What a storage that we may read says of an object that is not there; some servers have a page for everything."""
_UNSURE = "E_SOURCE_AUTH"  # S3 says so of what is not there to those who may read and not list
HANDSHAKES = ("control_zap_refused", "control_refused_handshake", "E_HANDSHAKE", "dropped_unsealed")
HANDSHAKES_MOST, HANDSHAKES_A_MINUTE = 10, 1.0  # some are a start's own self-check, or a host that was not known yet
RTT_FACTOR, RTT_LEAST_S = 3.0, 0.0005  # a switch more adds some tens of microseconds, another hall a millisecond
MTU_LEAST = 1428  # the largest datagram of membership, with its heads


class CheckVerdict(Enum):
    """The worst of all is the command's."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class CheckFinding(Struct, frozen=True):
    """What a check found; ``evidence`` has the figures."""

    verdict: CheckVerdict
    evidence: str


class PeerReading(Struct, frozen=True, kw_only=True):
    """What was tried with one other member. None: not tried. Otherwise empty when it worked, else why not."""

    name: str
    udp: str | None = None
    udp_large: str | None = None
    """A datagram of the largest size."""
    control: str | None = None
    bulk: str | None = None
    rack: str = ""
    rtt_s: float | None = None
    """Of a connection's first packets, as the kernel measured it."""


class SourceReading(Struct, frozen=True, kw_only=True):
    """What one ranged read of a source gave. ``model``: whose manifest names it; empty where only ``sources.allow``
    does, and an object was asked for that is not there. ``code``, ``sentence``: of the error; empty when a byte came.
    """

    source: str
    model: str
    code: str = ""
    sentence: str = ""
    credential: str = ""
    """Where this host's credentials for it were found; empty where it needs none."""
    ends_in_s: float | None = None
    """Until they end; None where nothing tells."""
    is_renewed: bool = False
    credential_trouble: str = ""
    """Why nothing can be read where they should be; empty where it can."""

    @property
    def reason(self) -> HostReason:
        """The word that ``status`` would show of a host that reads it."""
        if self.code == "E_SOURCE_WHOLE_ONLY":
            return HostReason.NO_RANGES
        return reason_of_code(self.code, HostReason.STORAGE) if self.code else HostReason.NONE

    @property
    def verdict(self) -> CheckVerdict:
        """Of this source alone. A server without ranges is read from the beginning, by one host."""
        if not self.code or (not self.model and self.code in _LET_IN):
            return CheckVerdict.OK
        is_doubtful = self.code == "E_SOURCE_WHOLE_ONLY" or (not self.model and self.code == _UNSURE)
        return CheckVerdict.WARN if is_doubtful else CheckVerdict.FAIL

    @property
    def words(self) -> str:
        """The finding with its reason and that reason's cure."""
        whose = f" of {self.model}" if self.model else ""
        sentence = self.sentence.partition("; cure: ")[0]  # that cure is for the log; the reason has its own
        return f"{self.source}{whose}: {self.reason.value}, {sentence}; cure: {self.reason.cure}"


class HostReadings(Struct, frozen=True, kw_only=True):
    """What was read of a host; None where it could not be read. Problems are sentences, empty when there is none."""

    config_problem: str | None = None
    keys_problem: str | None = None
    answers_problem: str | None = None
    places_problem: str | None = None
    unwritable: tuple[str, ...] | None = None
    """Directories that the daemon's user cannot write."""
    unreadable_for: str | None = None
    """Why ``--as USER`` cannot read models; empty when it can."""
    free_bytes: int | None = None
    disk_bytes: int | None = None
    free_inodes: int | None = None
    sync_s: float | None = None
    descriptors_max: int | None = None
    threads_max: int | None = None
    clock_is_kept: bool | None = None
    prints: Mapping[str, str] | None = None
    """Of the configuration and the keys as they lie here; None where the daemon's environment could not be read."""
    publishers: int | None = None
    contacts_unresolved: tuple[str, ...] | None = None
    advertises: str | None = None
    """The address that others dial."""
    mtu: int | None = None
    """Of the interface that leads to the cluster."""
    status: Mapping[str, Any] | None = None
    """The daemon's page; None when none answers."""
    daemon_problem: str | None = None
    refused: Mapping[str, int] | None = None
    """What the daemon has turned away since its start, by reason."""
    peers: tuple[PeerReading, ...] | None = None
    foreign_units: tuple[str, ...] | None = None
    """Files of systemd's unit that are not the one of this version; None where there is no unit."""
    sources: tuple[SourceReading, ...] | None = None
    """None where this host reads no storage."""
    reads_as_daemon: bool = True
    """Whether they were read in the environment of the running daemon."""


class Check(Struct, frozen=True):
    """``run`` gives None when there is nothing to judge by."""

    code: str
    run: Callable[[HostReadings], CheckFinding | None]
    sentence: str
    cure: str


def _ok() -> CheckFinding:
    return CheckFinding(CheckVerdict.OK, "")


def _problem(text: str | None) -> CheckFinding | None:
    return None if text is None else CheckFinding(CheckVerdict.FAIL, text) if text else _ok()


def _named(names: tuple[str, ...] | None, verdict: CheckVerdict = CheckVerdict.FAIL) -> CheckFinding | None:
    return None if names is None else CheckFinding(verdict, ", ".join(names)) if names else _ok()


def _least(value: float | None, fail: float, warn: float, unit: str) -> CheckFinding | None:
    if value is None:
        return None
    verdict = CheckVerdict.FAIL if value < fail else CheckVerdict.WARN if value < warn else CheckVerdict.OK
    return CheckFinding(verdict, f"{value:,.0f} {unit}".strip())


def _most(value: float | None, warn: float, fail: float, unit: str) -> CheckFinding | None:
    if value is None:
        return None
    verdict = CheckVerdict.FAIL if value > fail else CheckVerdict.WARN if value > warn else CheckVerdict.OK
    return CheckFinding(verdict, f"{value:.3g} {unit}".strip())


def _free_space(readings: HostReadings) -> CheckFinding | None:
    if readings.free_bytes is None or readings.disk_bytes is None:
        return None
    share = readings.free_bytes / max(1, readings.disk_bytes)
    need = (readings.status or {}).get("store", {}).get("need_bytes", 0)
    told = f"{show_bytes(readings.free_bytes)} free, {percent_words(readings.free_bytes, readings.disk_bytes)}"
    told += f"; {show_bytes(need)} more are needed" if need else ""
    if readings.free_bytes < FREE_LEAST_BYTES or need:
        return CheckFinding(CheckVerdict.FAIL, told)
    return CheckFinding(CheckVerdict.WARN if share < FREE_LEAST_SHARE else CheckVerdict.OK, told)


def _store(readings: HostReadings) -> CheckFinding | None:
    if readings.status is None:
        return None
    store = readings.status["store"]
    if store["condition"] != "ok":
        return CheckFinding(CheckVerdict.FAIL, f"{store['condition']}: {store['detail']}")
    return _problem(store["detail"])  # a model waits, while the disk takes others


def _inbox(readings: HostReadings) -> CheckFinding | None:
    if readings.status is None:
        return None
    inbox = readings.status["inbox"]
    waiting = f"; {show_count(inbox['waiting'], 'file')} in it" if inbox["waiting"] else ""
    return _problem(f"{inbox['trouble']}{waiting}" if inbox["trouble"] else "")


def _members(readings: HostReadings) -> CheckFinding | None:
    if readings.status is None:
        return None
    states = [member["state"] for member in readings.status["members"]]
    told = ", ".join(
        f"{states.count(word)} {word}" for word in ("alive", "suspect", "dead", "unheard") if word in states
    )
    gone = sum(map(states.count, ("dead", "suspect", "unheard")))
    if len(states) > 1 and states.count("alive") < 2:
        return CheckFinding(CheckVerdict.FAIL, told)
    return CheckFinding(CheckVerdict.WARN if gone else CheckVerdict.OK, told)


def _alone(readings: HostReadings) -> CheckFinding | None:
    if readings.status is None:
        return None
    codes = ("E_ALONE", "E_ISOLATED", "E_JOIN_REFUSED")
    told = [f"{alarm['code']}: {alarm['sentence']}" for alarm in readings.status["alarms"] if alarm["code"] in codes]
    return CheckFinding(CheckVerdict.FAIL, "; ".join(told)) if told else _ok()


def _alarms(readings: HostReadings) -> CheckFinding | None:
    if readings.status is None:
        return None
    told = [alarm["code"] for alarm in readings.status["alarms"]]
    return CheckFinding(CheckVerdict.WARN, ", ".join(told)) if told else _ok()


def _name(readings: HostReadings) -> CheckFinding | None:
    if readings.status is None:
        return None
    own = readings.status["node"]
    others = [each for each in readings.status["members"] if each["id"] != own["id"] and each["state"] == "alive"]
    same = [f"{each['id'][:12]} at {each['address']}" for each in others if each["name"] == own["name"]]
    same += [f"{each['name']} has {each['address']} too" for each in others if each["address"] == own["address"]]
    return CheckFinding(CheckVerdict.FAIL, "; ".join(same)) if same else _ok()


def _versions(readings: HostReadings) -> CheckFinding | None:
    if readings.status is None:
        return None
    heard = [each for each in readings.status["members"] if each["state"] != "unheard"]
    versions = sorted({each["version"] for each in heard if each["version"]})
    return CheckFinding(CheckVerdict.WARN if len(versions) > 1 else CheckVerdict.OK, ", ".join(versions))


def _seeds(readings: HostReadings) -> CheckFinding | None:
    if readings.status is None:
        return None
    alive = [each for each in readings.status["members"] if each["state"] == "alive"]
    seeds = [each["name"] for each in alive if each["seed"]]
    moving = [row for row in readings.status["deployments"] if row["state"] in ("init", "downloading")]
    words = f"{len(seeds)} seeds, {len(alive)} alive"
    if seeds or not moving:
        return CheckFinding(CheckVerdict.OK, words)
    told = {host["reason"] for row in moving for host in row["hosts"] if reason_of_word(host["reason"]).is_of_storage}
    if told:  # they have given up, each with its reason
        return CheckFinding(CheckVerdict.FAIL, f"{words}; those that could read say {', '.join(sorted(told))}")
    return CheckFinding(CheckVerdict.FAIL, words)


def _clock(readings: HostReadings) -> CheckFinding | None:
    if readings.status is None:
        return None
    told = [each.get("clock_ahead_s") for each in readings.status["members"] if each["state"] == "alive"]
    known = sorted(one for one in told if one is not None)
    if not known:
        return None
    median = known[len(known) // 2]
    worst = max(known, key=abs)
    finding = _most(abs(median), CLOCK_WARN_S, CLOCK_FAIL_S, f"s from the median of {len(known)} hosts")
    if finding is not None and finding.verdict is CheckVerdict.OK and abs(worst) > CLOCK_FAIL_S:
        name = next(e["name"] for e in readings.status["members"] if e.get("clock_ahead_s") == worst)
        return CheckFinding(CheckVerdict.WARN, f"the clock of {name} is {worst:.0f} s from this one")
    return finding


def _agreement(readings: HostReadings) -> CheckFinding | None:
    """Versions and clocks have checks of their own. Other settings may differ on purpose."""
    if readings.status is None:
        return None
    aspects = [one for one in compare(readings.status["members"]) if one.name not in ("version", "clock")]
    if not any(len(one.groups) > 1 or (one.groups and one.groups[0].value) for one in aspects):
        return None
    told = [f"{one.name}: {', '.join(one.fewest.hosts[:3])}" for one in aspects if one.differs]
    hard = [one for one in aspects if one.differs and one.name != "settings"]
    return CheckFinding(CheckVerdict.FAIL if hard else CheckVerdict.WARN, "; ".join(told)) if told else _ok()


def _running(readings: HostReadings) -> CheckFinding | None:
    """Whether the daemon runs with what lies here; what is this host's own, as its ports, is not compared."""
    if readings.status is None or not readings.prints:
        return None
    own = [one for one in readings.status["members"] if one["id"] == readings.status["node"]["id"]]
    told = own[0].get("prints") or {} if own else {}
    other = [name for name, value in readings.prints.items() if told.get(name, value) != value]
    return CheckFinding(CheckVerdict.WARN, f"not yet in force: {', '.join(other)}") if other else _ok()


def _clock_kept(readings: HostReadings) -> CheckFinding | None:
    if readings.clock_is_kept is None:
        return None
    return _ok() if readings.clock_is_kept else CheckFinding(CheckVerdict.WARN, "not synchronised")


def _scrub(readings: HostReadings) -> CheckFinding | None:
    if readings.status is None:
        return None
    return _most(readings.status["store"]["oldest_unchecked_s"], UNCHECKED_MAX_S, 4 * UNCHECKED_MAX_S, "s")


def _trust(readings: HostReadings) -> CheckFinding | None:
    """Whether a deployment of the cluster was refused here for its key."""
    if readings.status is None:
        return None
    told = [f"{row['id'][:12]} key {row['subject'][:12]}" for row in readings.status.get("refused", [])
            if row["reason"] == "refused_key"]  # fmt: skip
    return CheckFinding(CheckVerdict.FAIL, ", ".join(told)) if told else _ok()


def _deployments(readings: HostReadings) -> CheckFinding | None:
    if readings.status is None:
        return None
    stalled = [row for row in readings.status["deployments"] if row["stall"]]
    told = [f"{label_words(row)}: {row['stall']}" for row in stalled]
    return CheckFinding(CheckVerdict.WARN, ", ".join(told)) if told else _ok()


def _storage(readings: HostReadings) -> CheckFinding | None:
    """A model with several sources is delivered as long as one of them answers."""
    if not readings.sources:
        return None
    wrong = [one for one in readings.sources if one.verdict is not CheckVerdict.OK]
    told = f"{len(readings.sources) - len(wrong)} of {len(readings.sources)} sources are read"
    told += "" if readings.reads_as_daemon else ", with this command's credentials and not the daemon's"
    told = "; ".join([told, *(one.words for one in wrong)])
    well = {one.model for one in readings.sources if one.verdict is not CheckVerdict.FAIL and one.model}
    is_failed = any(one.verdict is CheckVerdict.FAIL and one.model not in well for one in wrong)
    return CheckFinding(
        CheckVerdict.FAIL if is_failed else CheckVerdict.WARN if wrong else CheckVerdict.OK, told
    )  # fmt: skip


def _credentials(readings: HostReadings) -> CheckFinding | None:
    """One that another program renews is on time until its very end."""
    found = {one.credential: one for one in readings.sources or () if one.credential}
    if not found:
        return None
    told, verdict = [], CheckVerdict.OK
    for place, one in found.items():
        if one.credential_trouble:
            told.append(f"{place}: {one.credential_trouble}")
            verdict = CheckVerdict.FAIL
        elif one.ends_in_s is None:
            told.append(place)
        elif one.ends_in_s <= 0:
            told.append(f"{place} ended {-one.ends_in_s:.0f} s ago")
            verdict = CheckVerdict.FAIL
        else:
            told.append(f"{place} ends in {one.ends_in_s:.0f} s")
            if one.ends_in_s < CREDENTIAL_LEAST_S and not one.is_renewed and verdict is CheckVerdict.OK:
                verdict = CheckVerdict.WARN
    return CheckFinding(verdict, "; ".join(told))


def _handshakes(readings: HostReadings) -> CheckFinding | None:
    if readings.refused is None or readings.status is None:
        return None
    counts = {name: readings.refused.get(name, 0) for name in HANDSHAKES}
    a_minute = 60 * sum(counts.values()) / max(60.0, readings.status["node"]["uptime_s"])
    told = ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "none"
    is_many = sum(counts.values()) > HANDSHAKES_MOST and a_minute > HANDSHAKES_A_MINUTE
    return CheckFinding(CheckVerdict.WARN if is_many else CheckVerdict.OK, f"{told}, since the daemon's start")


def _rack(readings: HostReadings) -> CheckFinding | None:
    """Whether a host of another rack is much nearer than all that were tried of this one's."""
    if readings.status is None:
        return None
    own = readings.status["node"]["rack"]
    tried = [(one.rtt_s, one.name, one.rack) for one in readings.peers or () if one.rtt_s is not None and one.rack]
    near = min((one for one in tried if one[2] == own), default=None)
    far = min((one for one in tried if one[2] != own), default=None)
    if near is None or far is None:
        return None
    told = "; ".join(f"{name} of {rack} in {1000 * rtt_s:.2f} ms" for rtt_s, name, rack in (near, far))
    is_odd = near[0] > RTT_FACTOR * far[0] and near[0] - far[0] > RTT_LEAST_S
    return CheckFinding(CheckVerdict.WARN if is_odd else CheckVerdict.OK, told)


def _of_peers(aspect: str) -> Callable[[HostReadings], CheckFinding | None]:
    def run(readings: HostReadings) -> CheckFinding | None:
        tried = [(one.name, getattr(one, aspect)) for one in readings.peers or () if getattr(one, aspect) is not None]
        if not tried:
            return None
        failed = [f"{name}: {why}" for name, why in tried if why]
        told = f"{len(tried) - len(failed)} of {len(tried)}" + "".join(f"; {one}" for one in failed)
        everybody = len(failed) == len(tried)
        return CheckFinding(CheckVerdict.FAIL if everybody else CheckVerdict.WARN if failed else CheckVerdict.OK, told)

    return run


def _address(readings: HostReadings) -> CheckFinding | None:
    if readings.advertises is None:
        return None
    is_any = readings.advertises in ("0.0.0.0", "::", "")
    return CheckFinding(CheckVerdict.FAIL if is_any else CheckVerdict.OK, readings.advertises)


CHECKS = (
    Check("config", lambda r: _problem(r.config_problem), "the configuration is right", "correct the lines named"),
    Check("keys", lambda r: _problem(r.keys_problem), "the key files are there, and private",
          "chmod 600; the sentence names the file"),
    Check("answers", lambda r: _problem(r.answers_problem), "this host's directories answer",
          "see the kernel's log, the device, or the server of a network file system"),
    Check("places", lambda r: _problem(r.places_problem), "directories are safe, and on a fit file system",
          "move them to a local disk; let no other user write them"),
    Check("writable", lambda r: _named(r.unwritable), "the daemon's directories can be written",
          "chown them to the daemon's user, or mount the disk for writing"),
    Check("free_space", _free_space, "there is room for models", "free some space; `store.keep_versions`"),
    Check("inodes", lambda r: _least(r.free_inodes, 1, INODES_LEAST, "inodes free"), "there is room for files",
          "delete files, or make the file system with more inodes"),
    Check("sync", lambda r: _most(r.sync_s, SYNC_SLOW_S, SYNC_HANGS_S, "s for a write and its sync"),
          "the disk writes through quickly", "look at what else uses the disk, and at its health"),
    Check("descriptors", lambda r: _least(r.descriptors_max, DESCRIPTORS_LEAST, DESCRIPTORS_ENOUGH, "open files"),
          "enough files may be open", "LimitNOFILE=65536 in the unit, or ulimit -n"),
    Check("threads", lambda r: _least(r.threads_max, 128, 512, "threads"), "enough threads may run",
          "TasksMax in the unit, ulimit -u, pids.max"),
    Check("unit", lambda r: _named(r.foreign_units, CheckVerdict.WARN), "systemd's unit is that of this version",
          "`gossipd assets unit` prints it; put changes of your own into a drop-in (`systemctl edit gossipd`)"),
    Check("clock_kept", _clock_kept, "the kernel says that the clock is kept right",
          "run chrony or systemd-timesyncd"),
    Check("clock", _clock, "this host's clock agrees with the others'", "set it: run chrony or systemd-timesyncd"),
    Check("publishers", lambda r: None if r.publishers is None else
          CheckFinding(CheckVerdict.OK if r.publishers else CheckVerdict.FAIL, show_count(r.publishers, "key")),
          "some publisher is trusted", "add its key to `security.trust`, then reload"),
    Check("trust", _trust, "no deployment is signed by a key that is missing here",
          "add the publisher's key to `security.trust`, then reload"),
    Check("contacts", lambda r: _named(r.contacts_unresolved), "the names in `net.join` can be looked up",
          "correct `net.join`, or the name service"),
    Check("address", _address, "the address that others dial is one", "set `net.advertise`"),
    Check("mtu", lambda r: _least(r.mtu, MTU_LEAST, MTU_LEAST, "bytes"), "the interface takes the largest datagram",
          "raise its MTU to 1,500, on the way to the other hosts too"),
    Check("daemon", lambda r: _problem(r.daemon_problem), "the daemon answers", "systemctl start gossipd; its log"),
    Check("running", _running, "the daemon runs with the settings and keys that lie here",
          "`gossipd reload`; restart it where that says so"),
    Check("store", _store, "the store takes what is deployed", "the sentence names the error"),
    Check("inbox", _inbox, "the inbox takes what is dropped into it",
          "the sentence names what refuses: free space or descriptors, or chown it to the daemon's user"),
    Check("alone", _alone, "this host hears the cluster", "see `gossipd help runbook`, E_ALONE"),
    Check("members", _members, "the members are alive", "start them, or `gossipd forget` them"),
    Check("name", _name, "name and address are this host's alone", "rename one: `node.name`, `net.advertise`"),
    Check("versions", _versions, "all hosts run one version", "finish the upgrade"),
    Check("agreement", _agreement, "hosts have the same keys and settings", "`gossipd members --drift` names them"),
    Check("seeds", _seeds, "somebody reads storage",
          "`gossipd why NAME@VERSION` where a reason is told; else `sources.enabled` on a host that is alive"),
    Check("storage", _storage, "storage gives a part of a file to this host", "as found, for each source"),
    Check("credentials", _credentials, "credentials for storage are there and last", "renew them where they should be"),
    Check("handshakes", _handshakes, "nobody knocks here with another cluster's key",
          "the daemon's log and audit log name the addresses; compare cluster.key there, or stop the port check"),
    Check("alarms", _alarms, "no alarm is shown", "see `gossipd help runbook`"),
    Check("stalls", _deployments, "nothing stands still here", "`gossipd why NAME@VERSION`"),
    Check("scrub", _scrub, "what is stored was checked lately", "let the daemon run; it reads all once a month"),
    Check("loop", lambda r: None if r.status is None else
          _most(r.status["loop_lag_p99_s"], LOOP_LAG_MAX_S, 2.0, "s late"), "the daemon has the CPU that it needs",
          "give it more CPU"),
    Check("job_reads", lambda r: _problem(r.unreadable_for), "the user can read models", "`store.models_mode`"),
    Check("udp", _of_peers("udp"), "others answer by UDP", "open `net.port` for UDP both ways; compare cluster.key"),
    Check("udp_large", _of_peers("udp_large"), "datagrams of 1,400 bytes get through",
          "an MTU on the way is too small: raise it to 1,500"),
    Check("control", _of_peers("control"), "others answer on the control port", "open `net.port` for TCP both ways"),
    Check("bulk", _of_peers("bulk"), "others answer on the bulk port", "open `net.bulk_port` for TCP both ways"),
    Check("rack", _rack, "hosts of this rack are nearer than others", "correct `node.rack` here, or on that host"),
)  # fmt: skip


def examine(readings: HostReadings) -> list[tuple[Check, CheckFinding]]:
    """All checks that have something to judge by, in the order of the list."""
    found = [(check, check.run(readings)) for check in CHECKS]
    return [(check, finding) for check, finding in found if finding is not None]
