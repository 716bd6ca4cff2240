"""Settings of models on this host: where they live, what is read from storage, which parts, within which limits.

What lives here: the sections ``[store]``, ``[sources]``, ``[parts]`` and ``[limits]``. What does not: what the daemon
does with them (``daemon.settings_mapping``), and the other sections (``sections`` names them).
"""

from __future__ import annotations

from pathlib import Path

from gossipd.config import kinds
from gossipd.config.section import Section
from gossipd.config.setting import GIB, GROUP, MIB, PATH, RATE, setting
from gossipd.core.limit_schedule import parse_entry
from gossipd.manifest.source_policy import SourcePolicy, SourceRuleError
from gossipd.parts.want import WantError, parse_want


def _check_mode(text: str) -> None:
    if len(text) != 4 or not set(text) <= set("01234567") or int(text, 8) & 0o7722 != 0o700:
        raise ValueError(f"{text[:20]!r} must be four octal digits in which only the owner may write: 0755, 0750, 0700")


class StoreSection(Section, frozen=True, kw_only=True):
    """Where models live."""

    models: Path = setting(
        PATH, "Directory of models, on a local disk: NAME/VERSION/ and NAME/current below it.", "models"
    )
    models_mode: str = setting(
        kinds.Text("four octal digits", _check_mode),
        'Mode of that directory: "0755": every user of the host may read the models, as the jobs that load them need;\n'
        '"0750": only the group may. Files are readable by all below it, whatever the umask.',
        "0755",
    )
    models_group: str = setting(
        GROUP, "Group of that directory, by name or number; empty is the daemon's own group.", ""
    )
    inbox: Path = setting(
        PATH,
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
    replicas_after_s: float = setting(
        kinds.Seconds(1, 30 * 86400),
        "How long a rack must have had fewer living copies than that until a host of it that has evicted the version\n"
        "takes it again. Longer than a host needs to restart. gossipd 0.1 does not know it.",
        900.0,
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
        RATE,
        "Rate of reading and comparing published models to find rot; 0 is never. 500 GB take 9 hours at 16MiB; what\n"
        "takes less than a minute is read once a minute.",
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


def _check_rule(text: str) -> None:
    try:
        SourcePolicy.parse([text])
    except SourceRuleError as error:
        raise ValueError(str(error.args[0]).partition("]")[2].strip()) from None


class SourcesSection(Section, frozen=True, kw_only=True):
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


def _check_want(text: str) -> None:
    try:
        parse_want([text])
    except WantError as error:
        raise ValueError(str(error.args[0])) from None


class PartsSection(Section, frozen=True, kw_only=True):
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


class LimitsSection(Section, frozen=True, kw_only=True):
    """How much of this host gossipd may use."""

    upload_bytes_per_s: int = setting(RATE, "Model bytes sent to other hosts; 0 is no limit.", 0, reload=True)
    download_bytes_per_s: int = setting(
        RATE,
        "Model bytes taken from other hosts and read from external storage, together; 0 is no limit.",
        0,
        reload=True,
    )
    source_bytes_per_s: int = setting(
        RATE,
        "Model bytes read from external storage, within the limit of downloads; 0 is no limit. A host with a limit\n"
        "reads only as a seed: it does not help where all seeds have slow links.",
        0,
        reload=True,
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
