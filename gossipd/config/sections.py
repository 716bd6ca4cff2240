"""Every setting: its section, kind, default, unit, trade-off, and whether it can change while the daemon runs.

What lives here: the frozen values of a configuration, with their descriptions, from which the file of ``gossipd init``,
the checks and the documentation are made. What does not: reading (``load``) and writing (``template``). The daemon
translates them into the settings of its parts, so that no part sees another's.

Names end in their unit: ``_bytes``, ``_s``, ``_bytes_per_s``. Sizes and times may be written with a unit in quotes.
Paths are relative to the file's directory, so that the directory can be moved.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

from gossipd.config import kinds
from gossipd.core.dscp import parse_dscp
from gossipd.core.limit_schedule import parse_entry
from gossipd.identity.cancel_rights import DEFAULT_ROLES, ROLES
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.names import check_label, check_model_name
from gossipd.manifest.source_policy import SourcePolicy, SourceRuleError
from gossipd.parts.want import WantError, parse_want

GIB = 1024**3
MIB = 1024**2
_RATE = kinds.ByteSize(0, 1024**4)
_PATH = kinds.Text("a path", kinds.check_path)


def setting(kind: kinds.SettingKind, comment: str, default: Any = MISSING, *, reload: bool = False) -> Any:
    """A field of a section. Without a default the file must set it. ``reload``: SIGHUP applies a new value."""
    metadata = {"kind": kind, "comment": comment, "reload": reload}
    if default is MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


def _check_label(text: str, *, chars_max: int) -> None:
    """``chars_max``: the room in a member record."""
    try:
        check_label(text, "name")
        if len(text) <= chars_max:
            return
    except ManifestError:
        pass
    raise ValueError(f"{text[:80]!r} must be 1 to {chars_max} of {_LABEL_RULE}")


_LABEL_RULE = "letters, digits, '.', '_' and '-', beginning with a letter, a digit or '_'"


def _check_mode(text: str) -> None:
    if len(text) != 4 or not set(text) <= set("01234567") or int(text, 8) & 0o7722 != 0o700:
        raise ValueError(f"{text[:20]!r} must be four octal digits in which only the owner may write: 0755, 0750, 0700")


def _check_group(text: str) -> None:
    if len(text) > 64 or any(character.isspace() or character in ":/" for character in text):
        raise ValueError(f"{text[:80]!r} must be the name or the number of a group")


_GROUP = kinds.Text("a group", _check_group, may_be_empty=True)
_NAME = kinds.Text("a name of letters, digits, '.', '_' and '-', at most 64", partial(_check_label, chars_max=64))
_PLACE = kinds.Text("a name of letters, digits, '.', '_' and '-', at most 32", partial(_check_label, chars_max=32))


def _check_rule(text: str) -> None:
    try:
        SourcePolicy.parse([text])
    except SourceRuleError as error:
        raise ValueError(str(error.args[0]).partition("]")[2].strip()) from None


DRIFT_ASPECTS = ("version", "trust", "clients", "cluster_key", "encryption", "settings")


def _check_aspect(text: str) -> None:
    if text not in DRIFT_ASPECTS:
        raise ValueError(f"{text[:80]!r} must be one of {', '.join(DRIFT_ASPECTS)}")


def _check_role(text: str) -> None:
    if text not in ROLES:
        raise ValueError(f"{text[:80]!r} must be one of {', '.join(ROLES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSection:
    """This host: its name and its place."""

    name: str = setting(_NAME, "This host's name, unique in the cluster. Status and targets use it.")
    rack: str = setting(
        _PLACE, "Hosts with the same rack share a switch: they fetch from each other first, and elect a seed."
    )
    zone: str = setting(
        replace(_PLACE, wanted="a name as a rack's, or empty", may_be_empty=True),
        "A group of racks, or empty. Between racks, those of the same zone are preferred.",
        "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NetSection:
    """Addresses and ports. Every member must reach every other's two ports."""

    bind: str = setting(kinds.Text("an IP address", kinds.check_address), "Address to listen on; 0.0.0.0 or :: is all.")
    port: int = setting(
        kinds.Whole(1, 65_535), "Port for TCP (control) and UDP (membership), open between all members.", 7946
    )
    advertise: str = setting(
        kinds.Text("an IP address", kinds.check_address, may_be_empty=True),
        "Address that other hosts dial; empty is bind. Must be set when bind is 0.0.0.0 or ::.",
        "",
    )
    bulk_bind: str = setting(
        kinds.Text("an IP address", kinds.check_address, may_be_empty=True),
        "Address that serves model bytes; empty is bind. Set it to keep bulk traffic on its own interface.",
        "",
    )
    bulk_port: int = setting(kinds.Whole(0, 65_535), "TCP port that serves model bytes; 0 is port + 1.", 0)
    join: tuple[str, ...] = setting(
        kinds.Texts(kinds.Text("HOST:PORT", kinds.split_contact)),
        "Some members, as HOST:PORT. One that answers is enough; three survive the failure of one. Empty: this host\n"
        "waits for others to find it. Members met before are remembered too.",
        (),
        reload=True,
    )
    dscp_bulk: str = setting(
        kinds.Text("a DSCP such as cs1 or le, or a number from 0 to 63", parse_dscp),
        "DSCP mark of model bytes, for switches that are set up for it: le or cs1 yield to everything. cs0 is none,\n"
        "because a switch may give a marked class too little to ever end. gossipd 0.1 does not know it.",
        "cs0",
    )
    dscp_control: str = setting(
        kinds.Text("a DSCP such as cs2 or af21, or a number from 0 to 63", parse_dscp),
        "DSCP mark of membership and control; cs0 is none. gossipd 0.1 does not know it.",
        "cs0",
    )
    background: bool = setting(
        kinds.Flag(),
        "true: model bytes that this host sends to others give way to all that uses the same links, as soon as\n"
        "packets wait or are lost there. What it reads from storage does not. gossipd 0.1 does not know it.",
        False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySection:
    """Keys: who may join, who may publish, who may trigger."""

    cluster_key: Path = setting(  # noqa: RUF009 -- a plain field, as the others are
        _PATH,
        "The secret that all hosts share: a host that holds it is a member. Must be 0600. SIGHUP reads new keys.",
        "cluster.key",
    )
    node_key: Path = setting(  # noqa: RUF009 -- a plain field, as the others are
        _PATH, "This host's own key, made by gossipd init; it is the host's identity. Must be 0600.", "node.key"
    )
    trust: tuple[Path, ...] = setting(
        kinds.Texts(_PATH),
        "Public keys (.pub) of publishers: only models signed by one of these are accepted. Empty: no model is.",
        (),
        reload=True,
    )
    trust_names: tuple[tuple[str, tuple[str, ...]], ...] = setting(
        kinds.Table(
            kinds.Text("a file of security.trust", kinds.check_path),
            kinds.Text('a pattern of model names, such as "prod/*"'),
        ),
        'Names that a trusted key may sign, such as {"trust/training.pub" = ["train/*"]}; a key that is not listed\n'
        "may sign all. * stands for any characters. Every host needs the same table. gossipd 0.1 does not know it.",
        (),
        reload=True,
    )
    clients: tuple[Path, ...] = setting(
        kinds.Texts(_PATH),
        "Public keys (.pub) that may use gossipd trigger against this host, and whose statements it believes. Every\n"
        "host needs the same list: a host that lacks a key ignores its commands.",
        (),
        reload=True,
    )
    may_cancel: tuple[str, ...] = setting(
        kinds.Texts(kinds.Text("a role: publisher, client, deployer or member", _check_role)),
        'Whose cancel this host obeys: "publisher", who signed the model; "client", of the list above; "deployer",\n'
        'the host or client that deployed it first; "member", any host. Every host needs the same list.',
        DEFAULT_ROLES,
        reload=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkSection:
    """The path of model bytes."""

    encryption: str = setting(
        kinds.Choice(("tls", "none")),
        '"tls": nobody on the network sees the model; costs about a core per GB/s at each end. "none": faster; bytes\n'
        "are still checked and one-time tokens keep strangers out, but others can read the bytes on the way. All\n"
        "hosts must have the same value.",
        "tls",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSection:
    """Where models live."""

    models: Path = setting(  # noqa: RUF009 -- a plain field, as the others are
        _PATH, "Directory of models, on a local disk: NAME/VERSION/ and NAME/current below it.", "models"
    )
    models_mode: str = setting(
        kinds.Text("four octal digits", _check_mode),
        'Mode of that directory: "0755": every user of the host may read the models, as the jobs that load them need;\n'
        '"0750": only the group may. Files are readable by all below it, whatever the umask.',
        "0755",
    )
    models_group: str = setting(
        _GROUP, "Group of that directory, by name or number; empty is the daemon's own group.", ""
    )
    inbox: Path = setting(  # noqa: RUF009 -- a plain field, as the others are
        _PATH,
        "Directory to drop signed manifests into. Only users who may deploy should be able to write there.",
        "inbox",
    )
    keep_versions: int = setting(
        kinds.Whole(1, 1000),
        "Complete versions of a model to keep. More: quicker rollback, more shared chunks; fewer: more disk space.",
        2,
    )
    high_watermark_percent: int = setting(
        kinds.Whole(0, 99),
        "Used share of the disk, by anybody, at which complete versions are evicted, down to the low watermark; 0 is\n"
        "never. Those that are not current go first, then those not read for longest. What is pinned (gossipd pin),\n"
        "held, open or still being deployed stays. gossipd 0.1 does not know it.",
        0,
        reload=True,
    )
    low_watermark_percent: int = setting(
        kinds.Whole(1, 99), "Used share of the disk at which eviction ends.", 80, reload=True
    )
    replicas: int = setting(
        kinds.Whole(0, 100),
        "Copies of a version that a rack keeps when disks are too full: so many of its hosts do not evict it by\n"
        "the high watermark or gossipd prune. For models that not every host needs. Every host needs the same\n"
        "number; 0: none.",
        0,
        reload=True,
    )
    reserve_bytes: int = setting(kinds.ByteSize(0, 1024**5), "Free disk space to leave to the rest of the host.", GIB)
    page_cache: str = setting(
        kinds.Choice(("keep", "drop")),
        '"keep": arriving bytes stay in memory for the job that loads the model next. "drop": memory is left to the\n'
        "jobs that run beside gossipd.",
        "keep",
    )
    scrub_bytes_per_s: int = setting(
        _RATE,
        "Rate of reading and comparing published models to find rot; 0 is never. 500 GB take 9 hours at 16MiB.",
        16 * MIB,
    )
    warm: bool = setting(
        kinds.Flag(),
        "true: current versions are read into free memory, so that the job that loads one next need not wait for the\n"
        "disk; gossipd status says how far. Nothing is read while memory is short. gossipd 0.1 does not know it.",
        False,
    )
    warm_bytes_per_s: int = setting(
        kinds.ByteSize(MIB, 1024**4), "Rate of that reading; faster takes more of the disk from jobs.", GIB
    )
    any_file_system: bool = setting(
        kinds.Flag(),
        "true: models and this file's directory may be on tmpfs, NFS and the like, where a crash loses verified\n"
        "chunks and the record of trusted versions. For trying things out.",
        False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcesSection:
    """External storage. Credentials are taken from the environment (AWS_*, GOOGLE_*, AZURE_*), never from here."""

    enabled: bool = setting(
        kinds.Flag(), "Whether this host may be elected to read external storage.", True, reload=True
    )
    allow: tuple[str, ...] = setting(
        kinds.Texts(kinds.Text("a scheme or a URL prefix", _check_rule)),
        'What may be read: schemes ("https"), hosts ("http://10.0.0.7:8000"), buckets ("s3://models"),\n'
        'repositories ("hf://ORG/MODEL"), directories ("file:///srv/models"). Loopback, link-local and\n'
        "metadata addresses only when listed by address.",
        ("https", "http", "s3", "gs", "az"),
        reload=True,
    )
    connections: int = setting(
        kinds.Whole(1, 64),
        "Requests to external storage at once. More: faster over distance; fewer: less load on it.",
        8,
    )
    budget_bytes: int = setting(
        kinds.ByteSize(0, 1024**5),
        "Bytes of one deployment that all hosts together may read from external storage; 0 is no limit. Then reads\n"
        "are held, and hosts go on with what others hold. Every host needs the same. gossipd 0.1 does not know it.",
        0,
        reload=True,
    )
    budget_money: float = setting(
        kinds.Amount(0, 1e9),
        "The same in money, at money_per_gb; 0 is no limit. The lower of both counts.",
        0.0,
        reload=True,
    )
    money_per_gb: float = setting(
        kinds.Amount(0, 1e6), "What 1,000,000,000 bytes read from external storage cost.", 0.0, reload=True
    )
    timeout_s: float = setting(
        kinds.Seconds(1, 600), "Silence after which a request is given up and repeated, with growing pauses.", 10.0
    )


def _check_repository(text: str) -> None:
    parts = text.split("/")
    if len(parts) > 2 or any(not part or part.startswith(".") or "--" in part or ".." in part for part in parts):
        raise ValueError(f"{text[:80]!r} must be ORG/NAME as the Hub writes it")
    for part in parts:
        _check_label(part, chars_max=96)


def _check_want(text: str) -> None:
    try:
        parse_want([text])
    except WantError as error:
        raise ValueError(str(error.args[0])) from None


def _check_user(text: str) -> None:
    if len(text) > 64 or any(character.isspace() or character in ":/" for character in text):
        raise ValueError(f"{text[:80]!r} must be the name or the number of a user")


_USER = kinds.Text("the name or the number of a user", _check_user)


def _check_marker(text: str) -> None:
    if text.startswith("/") or ".." in text.split("/"):
        raise ValueError(f"{text[:80]!r} must be a path below the step's directory")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEntry:
    """One ``[[publish.watch]]``: a directory whose steps are published by themselves. Hashable: it is a key."""

    directory: str = setting(_PATH, "Its directories whose names end in digits are steps of a training run.")
    name: str = setting(kinds.Text("a model's name", check_model_name), "The model; steps become its versions.")
    user: str = setting(
        replace(_USER, wanted="the name or the number of a user, or empty", may_be_empty=True),
        "Whose files these are. Empty: those of any owner, in a directory that only the daemon's user may write to.",
        "",
    )
    pattern: str = setting(kinds.Text("a pattern of names"), "Only directories of such names.", "*")
    marker: str = setting(
        kinds.Text("a path in the step's directory, or empty", _check_marker, may_be_empty=True),
        "The file that is written last. Empty: .metadata, or safetensors files.",
        "",
    )
    keep_last: int = setting(kinds.Whole(0, 1_000_000), "The newest so many versions live; 0 is no rule.", 0)
    keep_every: int = setting(kinds.Whole(0, 2**32 - 1), "With keep_last: steps that this divides, too.", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSection:
    """Publishing by jobs on this host: the daemon signs, so that a job holds no key."""

    keys: tuple[Path, ...] = setting(
        kinds.Texts(_PATH),
        "Secret keys of publishers that this daemon signs with; the first that is trusted here for a name is used.\n"
        "Must be 0600. Empty: nobody publishes through this daemon. gossipd 0.1 does not know this section.",
        (),
        reload=True,
    )
    users: tuple[tuple[str, tuple[str, ...]], ...] = setting(
        kinds.Table(_USER, kinds.Text('a pattern of model names, such as "train/*"')),
        'Users of this host that may publish, and the names that each may: {"alice" = ["train/*"]}. The daemon\'s own\n'
        "user and root may publish all.",
        (),
        reload=True,
    )

    watch: tuple[WatchEntry, ...] = setting(
        kinds.Records(WatchEntry, "publish.watch", 64),
        "Directories whose finished steps are published as gossipd watch does:\n"
        'directory = "/scratch/run-7", name = "train/run-7", user = "alice". The user may publish that name. Where\n'
        "several hosts share the directory, only one may watch it. gossipd 0.1 does not know it.",
        (),
        reload=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HfSection:
    """Models under their names on the Hugging Face Hub, for programs that load by such a name, offline."""

    caches: tuple[Path, ...] = setting(
        kinds.Texts(_PATH),
        "Directories as HF_HUB_CACHE names them (~/.cache/huggingface/hub). Each gets links to the complete models of\n"
        "this host; entries of real downloads are left alone. gossipd 0.1 does not know this section.",
        (),
        reload=True,
    )
    names: tuple[tuple[str, tuple[str, ...]], ...] = setting(
        kinds.Table(
            kinds.Text("a model's name", kinds.check_path), kinds.Text("a repository, ORG/NAME", _check_repository)
        ),
        'Repositories that a model stands for: {"llama-prod" = ["meta-llama/Llama-3.1-8B"]}. A model that is not\n'
        "listed has its own name there.",
        (),
        reload=True,
    )


_COMMAND = kinds.Texts(kinds.Text("a program's path, then its arguments"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksSection:
    """Programs that this daemon starts, as its own user, with a JSON object on standard input and 30 s of time."""

    complete: tuple[str, ...] = setting(
        _COMMAND,
        'When a version is complete here, after "current" has moved; also for those that are at the daemon\'s start:\n'
        '["/usr/local/bin/label_node.py", "label"]. No shell reads it. gossipd 0.1 does not know this section.',
        (),
        reload=True,
    )
    failed: tuple[str, ...] = setting(_COMMAND, "When a deployment has failed here.", (), reload=True)
    alarm: tuple[str, ...] = setting(_COMMAND, "When an alarm begins.", (), reload=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsSection:
    """What this host wants of models, where it is not all of them."""

    wants: tuple[tuple[str, tuple[str, ...]], ...] = setting(
        kinds.Table(
            kinds.Text("a model's name", kinds.check_path), kinds.Text("a term of a want", _check_want), parse_want
        ),
        'By model name: {"acme/v3" = ["ep:3/16"]}. Terms: files:GLOB, tensors:GLOB, ep:RANK/RANKS, pp:FIRST-LAST,\n'
        "ranges:FILE:FROM-TO. Several want all that any of them does. gossipd 0.1 does not know this section.",
        (),
        reload=True,
    )
    frees: bool = setting(
        kinds.Flag(),
        "Whether what is here and wanted no longer is deleted, when a want changes and at the daemon's start.",
        False,
        reload=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSection:
    """How much of this host gossipd may use."""

    upload_bytes_per_s: int = setting(_RATE, "Model bytes sent to other hosts; 0 is no limit.", 0, reload=True)
    download_bytes_per_s: int = setting(
        _RATE,
        "Model bytes taken from other hosts and read from external storage, together; 0 is no limit.",
        0,
        reload=True,
    )
    source_bytes_per_s: int = setting(
        _RATE, "Model bytes read from external storage, within the limit of downloads; 0 is no limit.", 0, reload=True
    )
    schedule: tuple[str, ...] = setting(
        kinds.Texts(kinds.Text("DAYS HOURS LIMIT=RATE", parse_entry)),
        'Other limits at some hours: ["mon-fri 08:00-18:00 upload=200MiB download=1GiB", "sat 22:00-06:00 source=0"];\n'
        "0 is no limit. What an entry does not name, and what none covers, is as above. None may overlap; those\n"
        "past midnight belong to the day on which they begin. gossipd 0.1 does not know it.",
        (),
        reload=True,
    )
    schedule_zone: str = setting(
        kinds.Text("a time zone such as Europe/Berlin, or UTC", kinds.time_zone),
        "The time zone of these hours. Hours that its clocks skip or repeat are as on a wall clock.",
        "UTC",
        reload=True,
    )
    upload_slots: int = setting(
        kinds.Whole(1, 64),
        "Most uploads at once; fewer are used where they fill the link. Peers that ask for more are told: busy.",
        24,
    )
    pool_bytes: int = setting(
        kinds.ByteSize(64 * MIB, 64 * GIB),
        "Memory for chunks in transit. It bounds the daemon's memory; more helps fast links only.",
        128 * MIB,
    )
    connections: int = setting(
        kinds.Whole(8, 10_000), "Bulk connections accepted at once; each costs a thread and some 60 KiB.", 256
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSection:
    """How failures are detected. The same on all hosts; the defaults fit one data centre up to 1,000 hosts."""

    probe_interval_s: float = setting(
        kinds.Seconds(0.1, 60),
        "One member is probed each interval. Shorter: finds failures sooner, for more traffic (440 B/s at 500ms).",
        0.5,
    )
    probe_timeout_s: float = setting(
        kinds.Seconds(0.02, 10), "Time until other hosts are asked to probe too. Under half the interval.", 0.2
    )
    suspicion_base_s: float = setting(
        kinds.Seconds(0.2, 120),
        "Time for a suspect to answer, plus 0.8 s per factor of ten in hosts. Longer: fewer false alarms.",
        1.5,
    )
    roster_keep_s: float = setting(
        kinds.Seconds(60, 3650 * 86400), "How long a host that is down still counts among the targets.", 14 * 86400.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSection:
    """The status socket and metrics."""

    socket: Path = setting(  # noqa: RUF009 -- a plain field, as the others are
        _PATH, "Unix socket for status, metrics and commands. At most 107 bytes with its directory.", "gossipd.sock"
    )
    read_socket: Path = setting(  # noqa: RUF009 -- a plain field, as the others are
        _PATH, "Unix socket that answers questions and takes no command: for jobs and scrapers.", "gossipd-read.sock"
    )
    readers: str = setting(
        kinds.Choice(("all", "group", "none")),
        'Who may use read_socket. "all": every user of this host. "group": the group below. "none": it is not made.',
        "all",
    )
    read_group: str = setting(_GROUP, "That group, by name or number; empty is the daemon's own group.", "")
    metrics_port: int = setting(
        kinds.Whole(0, 65_535), "TCP port for /metrics and /healthz; 0 is none (the socket has both).", 0
    )
    metrics_bind: str = setting(
        kinds.Text("an IP address", kinds.check_address),
        "Address of that port. On any but 127.0.0.1 all who reach it may read which models and racks there are: keep\n"
        "it to the network of your monitoring. It takes no orders. gossipd 0.1 does not know it.",
        "127.0.0.1",
    )
    drift_alarm: tuple[str, ...] = setting(
        kinds.Texts(kinds.Text("version, trust, clients, cluster_key, encryption or settings", _check_aspect)),
        "What should be the same on all hosts, as `gossipd members --drift` names it: the alarm E_DRIFT when it\n"
        "differs for ten minutes, a version for a day. Empty: no alarm. Take out what differs on purpose.",
        DRIFT_ASPECTS[:-1],
        reload=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSection:
    """Lines on stderr."""

    level: str = setting(
        kinds.Choice(("debug", "info", "warning", "error")), "Least level that is logged.", "info", reload=True
    )
    format: str = setting(
        kinds.Choice(("auto", "json", "text")), '"auto": text on a terminal, else JSON lines.', "auto"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole configuration, with absolute paths; only ``load_config`` makes one."""

    file: Path
    node: NodeSection
    net: NetSection
    security: SecuritySection
    bulk: BulkSection
    store: StoreSection
    sources: SourcesSection
    publish: PublishSection
    hf: HfSection
    hooks: HooksSection
    parts: PartsSection
    limits: LimitsSection
    membership: MembershipSection
    status: StatusSection
    log: LogSection

    @property
    def advertised(self) -> str:
        return self.net.advertise or self.net.bind

    @property
    def bulk_address(self) -> tuple[str, int]:
        """Where model bytes are served."""
        return self.net.bulk_bind or self.net.bind, self.net.bulk_port or self.net.port + 1


SECTIONS: dict[str, type] = {name: kind for name, kind in get_type_hints(Config).items() if name != "file"}
