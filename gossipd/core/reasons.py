"""Every reason why a host is no further with a deployment: the one table of them.

What lives here: the word, its number on the wire, what it means, who can cure it and how, whether it ends without a
person, and the exit code of a command that ends with it; and the words for a deployment that was taken back from all
hosts. What does not: which reason a host has at the moment (``deployment``), and where it is shown. Rows of the status,
labels of metrics, and the messages of ``wait`` all show words of this table, so that one host has one reason in every
view. The manual's page ``reasons`` is made of it.

Numbers are on the wire and on the disk: append only, at most 127. Format 1 of the progress record has room for 31 and
its readers know up to ``FORMAT_1_LAST``; a later reason is told to them as the nearest that they know.
"""

from __future__ import annotations

from enum import Enum

from gossipd.core.errors import ExitCode

FORMAT_1_LAST = 20
NUMBER_MAX = 127  # seven bits in a row of the saved table
TAKEN_BACK = {"roll_back": "rolled back everywhere", "remove": "removed everywhere"}
"""What a deployment's last word means for users of it, where it was not to deploy."""


class CuredBy(Enum):
    """Who can do something about it."""

    NOBODY = "nobody"
    HOST = "the host's operator"
    DISK = "the host's disk"
    NETWORK = "the network"
    STORAGE = "the storage"
    PUBLISHER = "the publisher"


class Heals(Enum):
    """What it takes, once the cause is gone."""

    BY_ITSELF = "by itself"
    ON_RELOAD = "on reload"
    """After ``SIGHUP``, or an order of the operator's."""
    NEVER = "no"
    """This deployment cannot go on there; another must be begun."""


class HostReason(Enum):
    """Why a host is no further, in the words of ``status``."""

    _value_: str
    number: int
    """On the wire."""
    cured_by: CuredBy
    heals: Heals
    exit_code: ExitCode
    sentence: str
    cure: str
    number_in_format_1: int

    def __new__(  # noqa: PLR0917 - a row of a table
        cls, word: str, number: int, cured_by: CuredBy, heals: Heals, exit_code: ExitCode, sentence: str, cure: str,
        nearest: int = 0,
    ) -> HostReason:  # fmt: skip
        """``nearest``: the number that format 1 tells in its place, for a later reason."""
        reason = object.__new__(cls)
        reason._value_, reason.number, reason.cured_by, reason.heals = word, number, cured_by, heals
        reason.exit_code, reason.sentence, reason.cure = exit_code, sentence, cure
        reason.number_in_format_1 = number if number <= FORMAT_1_LAST else nearest
        return reason

    @property
    def ends_waits(self) -> bool:
        """Whether ``wait`` ends with it, as no host comes further before somebody acts. A host that goes on by itself
        then says it, too: storage that is served or filled wrongly stays so until a person sees it."""
        return self.heals is Heals.NEVER or self in _WRONGLY_SERVED

    @property
    def is_the_readers(self) -> bool:
        """Whether only a host that reads storage can say it, and all that wait for that host show it."""
        return self in READERS

    @property
    def is_of_storage(self) -> bool:
        """Whether a host that may read storage says with it why it cannot."""
        is_general = self in (HostReason.STORAGE, HostReason.WAITS_FOR_READER)
        return not is_general and self.exit_code in (ExitCode.SOURCE_AUTH, ExitCode.SOURCE_UNREACHABLE)

    NONE = "", 0, CuredBy.NOBODY, Heals.BY_ITSELF, ExitCode.PARTIAL, "nothing is wrong", "nothing"
    OTHER = (
        "other", 1, CuredBy.HOST, Heals.BY_ITSELF, ExitCode.PARTIAL,
        "the host says no more than that it waits, or is of a later version", "see the log of that host",
    )  # fmt: skip
    NO_HOLDER = (
        "no_holder", 2, CuredBy.STORAGE, Heals.BY_ITSELF, ExitCode.PARTIAL,
        "no living host holds what is missing", "look at why the hosts that may read storage do not",
    )  # fmt: skip
    ALL_BUSY = (
        "all_busy", 3, CuredBy.NOBODY, Heals.BY_ITSELF, ExitCode.PARTIAL,
        "all that hold what is missing serve others just now", "nothing; a limit on uploads may be too low",
    )  # fmt: skip
    DISK = (
        "disk", 4, CuredBy.DISK, Heals.BY_ITSELF, ExitCode.DISK,
        "this host cannot write", "`store.detail` in that host's status names the error",
    )  # fmt: skip
    STORAGE = (
        "storage", 5, CuredBy.STORAGE, Heals.BY_ITSELF, ExitCode.SOURCE_UNREACHABLE,
        "reads of storage fail, hang, or are limited to less than a chunk in some seconds, or no host may read it",
        "look at storage, `sources.enabled`, `sources.allow`, `limits.source_bytes_per_s`",
    )  # fmt: skip
    VERIFICATION = (
        "verification", 6, CuredBy.NOBODY, Heals.BY_ITSELF, ExitCode.VERIFICATION,
        "bytes that arrived did not match the manifest", "nothing, unless it stays: the audit log names who sent them",
    )  # fmt: skip
    MEMBERSHIP = (
        "membership", 7, CuredBy.NETWORK, Heals.BY_ITSELF, ExitCode.PARTIAL,
        "this host sees no other, or the seeds are being chosen", "look at the ports, if it lasts",
    )  # fmt: skip
    NO_SPACE = (
        "no_space", 8, CuredBy.DISK, Heals.BY_ITSELF, ExitCode.DISK,
        "the model does not fit on the disk", "free some space; it is noticed within ten seconds",
    )  # fmt: skip
    DISK_READ_ONLY = (
        "disk_read_only", 9, CuredBy.DISK, Heals.BY_ITSELF, ExitCode.DISK,
        "the disk is read-only, or its directory may not be written", "make it writable; `store.detail` names it",
    )  # fmt: skip
    DISK_FAILING = (
        "disk_failing", 10, CuredBy.DISK, Heals.BY_ITSELF, ExitCode.DISK,
        "the disk returns errors", "replace it; `store.detail` names the error",
    )  # fmt: skip
    SOURCE_AUTH = (
        "source_auth", 11, CuredBy.STORAGE, Heals.BY_ITSELF, ExitCode.SOURCE_AUTH,
        "storage refused the credentials", "give the daemons of the seeds new ones, and restart them",
    )  # fmt: skip
    SOURCE_GONE = (
        "source_gone", 12, CuredBy.PUBLISHER, Heals.BY_ITSELF, ExitCode.SOURCE_UNREACHABLE,
        "the object is not in storage", "put it back, or publish under a new version",
    )  # fmt: skip
    SOURCE_CHANGED = (
        "source_changed", 13, CuredBy.PUBLISHER, Heals.BY_ITSELF, ExitCode.SOURCE_UNREACHABLE,
        "the object in storage is no longer what was published",
        "put it back (`gossipd reload` on the host that reads it has it read at once), or publish under a new version",
    )  # fmt: skip
    SOURCE_UNREACHABLE = (
        "source_unreachable", 14, CuredBy.NETWORK, Heals.BY_ITSELF, ExitCode.SOURCE_UNREACHABLE,
        "storage is not reachable, fails, or sends less than 64 KiB a second to a read",
        "look at the network and at storage; the log of the host that reads it says which",
    )  # fmt: skip
    SOURCE_FORBIDDEN = (
        "source_forbidden", 15, CuredBy.HOST, Heals.ON_RELOAD, ExitCode.SOURCE_UNREACHABLE,
        "`sources.allow` does not name the storage", "add it to `sources.allow`, then `gossipd reload`",
    )  # fmt: skip
    REMOVED = (
        "removed", 16, CuredBy.HOST, Heals.NEVER, ExitCode.PARTIAL,
        "an operator removed it from this host or from all",
        "drop the manifest into this host's inbox, if it shall come back",
    )  # fmt: skip
    REFUSED_ROLLBACK = (
        "refused_rollback", 17, CuredBy.PUBLISHER, Heals.ON_RELOAD, ExitCode.TRUST,
        "a higher version of the name is trusted here",
        "publish with a higher version, or `gossipd trust override NAME` on this host",
    )  # fmt: skip
    REFUSED = (
        "refused", 18, CuredBy.PUBLISHER, Heals.NEVER, ExitCode.TRUST,
        "the manifest breaks a rule of this host", "the log of that host has the code",
    )  # fmt: skip
    MEMORY = (
        "memory", 19, CuredBy.HOST, Heals.BY_ITSELF, ExitCode.PARTIAL,
        "no buffer is free", "raise `limits.pool_bytes`",
    )  # fmt: skip
    HOLDER_SILENT = (
        "holder_silent", 20, CuredBy.NETWORK, Heals.BY_ITSELF, ExitCode.PARTIAL,
        "a host was asked, and neither refused nor delivered, or cannot be connected to for chunks",
        "nothing: another is asked; if it stays, look at the host that is named, and open `net.bulk_port` (TCP) "
        "between the two",
    )  # fmt: skip
    REFUSED_KEY = (
        "refused_key", 21, CuredBy.HOST, Heals.ON_RELOAD, ExitCode.TRUST,
        "the publisher's key is not trusted on this host, or not for this name",
        "add the key to `security.trust` there, then `gossipd reload`", 18,
    )  # fmt: skip
    REFUSED_EXPIRED = (
        "refused_expired", 22, CuredBy.PUBLISHER, Heals.ON_RELOAD, ExitCode.TRUST,
        "the manifest had expired before this host heard of it",
        "publish again; if this host's clock is wrong, set it, then `gossipd reload`", 1,
    )  # fmt: skip
    REFUSED_OPERATOR = (
        "refused_operator", 23, CuredBy.HOST, Heals.ON_RELOAD, ExitCode.TRUST,
        "an operator of this host has said `gossipd untrust` of it", "`gossipd untrust --undo`, if it shall come back",
        18,
    )  # fmt: skip
    NOT_TARGET = (
        "not_target", 24, CuredBy.PUBLISHER, Heals.NEVER, ExitCode.PARTIAL,
        "the manifest's targets do not name this host", "publish with other targets", 0,
    )  # fmt: skip
    CLOCK_WRONG = (
        "clock_wrong", 25, CuredBy.HOST, Heals.BY_ITSELF, ExitCode.PARTIAL,
        "this host's clock differs too much from the others'", "set it; the host tries again", 1,
    )  # fmt: skip
    PAUSED = (
        "paused", 26, CuredBy.HOST, Heals.BY_ITSELF, ExitCode.PARTIAL,
        "somebody has paused it", "`gossipd resume NAME@VERSION`, or deploy it again", 1,
    )  # fmt: skip
    NO_RANGES = (
        "no_ranges", 27, CuredBy.STORAGE, Heals.BY_ITSELF, ExitCode.SOURCE_UNREACHABLE,
        "the server cannot send parts of a file",
        "serve the model by one that can; if that has another address, publish with it", 5,
    )  # fmt: skip
    SOURCE_ENCODED = (
        "source_encoded", 28, CuredBy.STORAGE, Heals.BY_ITSELF, ExitCode.SOURCE_UNREACHABLE,
        "the server compresses what it sends", "switch that off for the model's files", 5,
    )  # fmt: skip
    OBJECT_SHORT = (
        "object_short", 29, CuredBy.PUBLISHER, Heals.BY_ITSELF, ExitCode.SOURCE_UNREACHABLE,
        "the object in storage is shorter than the manifest says", "let its upload end, or upload it again", 13,
    )  # fmt: skip
    SOURCE_BUSY = (
        "source_busy", 30, CuredBy.STORAGE, Heals.BY_ITSELF, ExitCode.SOURCE_UNREACHABLE,
        "storage asks for fewer requests", "nothing; it is asked again when it allows", 14,
    )  # fmt: skip
    NO_INODES = (
        "no_inodes", 31, CuredBy.DISK, Heals.BY_ITSELF, ExitCode.DISK,
        "the file system has room for bytes, but for no more files",
        "delete files, or make it with more inodes (`df -i`)", 8,
    )  # fmt: skip
    NO_COPY = (
        "no_copy", 32, CuredBy.PUBLISHER, Heals.BY_ITSELF, ExitCode.PARTIAL,
        "neither storage nor any host has what is missing", "put it back into storage, or publish a new version", 2,
    )  # fmt: skip
    REFILLING = (
        "refilling", 33, CuredBy.NOBODY, Heals.BY_ITSELF, ExitCode.PARTIAL,
        "chunks of a published model were damaged and are fetched again", "nothing; look at the disk if it recurs", 0,
    )  # fmt: skip
    WAITS_FOR_READER = (
        "waits_for_reader", 34, CuredBy.STORAGE, Heals.BY_ITSELF, ExitCode.SOURCE_UNREACHABLE,
        "the host that reads storage cannot", "see that host's reason", 5,
    )  # fmt: skip
    NOT_HEARD = (
        "not_heard", 35, CuredBy.HOST, Heals.BY_ITSELF, ExitCode.PARTIAL,
        "nothing was heard from that host about this deployment",
        "it has just joined, or is cut off: see its alarms and its log, and `gossipd doctor --peers` there",
    )  # fmt: skip
    SUSPECT = (
        "suspect", 36, CuredBy.HOST, Heals.BY_ITSELF, ExitCode.PARTIAL,
        "the host does not answer, and is not yet called dead", "wait some seconds",
    )  # fmt: skip
    DEAD = (
        "dead", 37, CuredBy.HOST, Heals.BY_ITSELF, ExitCode.PARTIAL,
        "the host is dead", "start it, or `gossipd forget` it, so that it counts no longer",
    )  # fmt: skip
    LEFT = (
        "left", 38, CuredBy.HOST, Heals.BY_ITSELF, ExitCode.PARTIAL,
        "the host was stopped", "start it, or `gossipd forget` it, so that it counts no longer",
    )  # fmt: skip
    ISOLATED = (
        "isolated", 39, CuredBy.NETWORK, Heals.BY_ITSELF, ExitCode.PARTIAL,
        "the host receives nothing from the cluster", "look at its ports, cables and firewall",
    )  # fmt: skip

    SOURCE_NO_CREDENTIALS = (
        "source_no_credentials", 40, CuredBy.STORAGE, Heals.BY_ITSELF, ExitCode.SOURCE_AUTH,
        "no credentials for the storage were found", "give the seeds some; their log says where they looked",
        11,
    )  # fmt: skip
    SOURCE_TOKEN_EXPIRED = (
        "source_token_expired", 41, CuredBy.STORAGE, Heals.BY_ITSELF, ExitCode.SOURCE_AUTH,
        "the credentials for the storage have expired", "renew them on the seeds", 11,
    )  # fmt: skip
    SOURCE_CLOCK = (
        "source_clock", 42, CuredBy.HOST, Heals.BY_ITSELF, ExitCode.SOURCE_AUTH,
        "the storage finds the clock of the host that reads it wrong", "set that clock", 11,
    )  # fmt: skip
    SOURCE_REGION = (
        "source_region", 43, CuredBy.HOST, Heals.BY_ITSELF, ExitCode.SOURCE_AUTH,
        "the bucket is in another region", "set the region in the environment of the seeds' daemons", 11,
    )  # fmt: skip
    SOURCE_ACCOUNT = (
        "source_account", 44, CuredBy.STORAGE, Heals.BY_ITSELF, ExitCode.SOURCE_AUTH,
        "the storage's account is closed, unpaid, or wants the requester to pay", "see the account", 11,
    )  # fmt: skip
    SOURCE_ENCRYPTED = (
        "source_encrypted", 45, CuredBy.STORAGE, Heals.BY_ITSELF, ExitCode.SOURCE_AUTH,
        "the storage cannot decrypt the object", "see the settings of its key", 11,
    )  # fmt: skip
    SOURCE_ARCHIVED = (
        "source_archived", 46, CuredBy.STORAGE, Heals.BY_ITSELF, ExitCode.SOURCE_UNREACHABLE,
        "the object lies in an archive", "restore it; the seeds try again", 12,
    )  # fmt: skip
    SOURCE_PROXY = (
        "source_proxy", 47, CuredBy.NETWORK, Heals.BY_ITSELF, ExitCode.SOURCE_UNREACHABLE,
        "the proxy on the way to storage refuses or fails", "look at the proxy and at the seeds' environment", 14,
    )  # fmt: skip
    IDENTITY_TWICE = (
        "identity_twice", 48, CuredBy.HOST, Heals.BY_ITSELF, ExitCode.PARTIAL,
        "two hosts speak with this host's key, so neither's word counts", "see the alarm `E_IDENTITY_TWICE`",
    )  # fmt: skip
    CASE_FOLDED = (
        "case_folded", 49, CuredBy.HOST, Heals.NEVER, ExitCode.DISK,
        "names of the model differ only in case, and this host's file system takes them for one",
        "move the store to one that tells them apart, or publish with other names", 18,
    )  # fmt: skip
    SOURCE_RANGE = (
        "source_range", 50, CuredBy.STORAGE, Heals.BY_ITSELF, ExitCode.SOURCE_UNREACHABLE,
        "asked for a part of a file, the server sends something else: a page, or another part",
        "look at what that address gives; serve the model by a server with ranges", 5,
    )  # fmt: skip
    SOURCE_REFUSED = (
        "source_refused", 51, CuredBy.STORAGE, Heals.BY_ITSELF, ExitCode.SOURCE_UNREACHABLE,
        "storage refuses the request, and says no more than a status", "the log of the host that reads it has that", 5,
    )  # fmt: skip
    REFUSED_SCHEMA = (
        "refused_schema", 52, CuredBy.HOST, Heals.ON_RELOAD, ExitCode.TRUST,
        "the manifest is of a later gossipd than this host's", "upgrade gossipd on this host, and restart it", 18,
    )  # fmt: skip
    VERSION_TAKEN = (
        "version_taken", 53, CuredBy.HOST, Heals.ON_RELOAD, ExitCode.USAGE,
        "something else stands in this host's store where the model would be",
        "move it away there, or where the log of that host says, then `gossipd reload`", 18,
    )  # fmt: skip
    STORE_DAMAGED = (
        "store_damaged", 54, CuredBy.HOST, Heals.ON_RELOAD, ExitCode.VERIFICATION,
        "a file of this host's store is not as gossipd left it, or of a later version",
        "the log of that host names it: move it away, then `gossipd reload`", 18,
    )  # fmt: skip
    EVICTED = (
        "evicted", 55, CuredBy.HOST, Heals.NEVER, ExitCode.PARTIAL,
        "its host made room: newer versions (`keep_versions`), the disk's high watermark, or `gossipd prune`",
        "drop the manifest into this host's inbox, if it shall come back; `gossipd pin` keeps a version", 16,
    )  # fmt: skip
    SOURCE_BUDGET = (
        "source_budget", 56, CuredBy.HOST, Heals.ON_RELOAD, ExitCode.SOURCE_UNREACHABLE,
        "the budget for reads of storage is spent, and no living host holds the rest",
        "deploy it again with a higher `--budget`; or raise `sources.budget_bytes` or `sources.budget_money` on every "
        "host, then `gossipd reload`", 5,
    )  # fmt: skip
    WANT = (
        "want", 57, CuredBy.HOST, Heals.ON_RELOAD, ExitCode.USAGE,
        "what the host wants of the model means nothing there: no file or tensor matches, or there is no index",
        "change `parts.wants` and reload, or `gossipd want`; `gossipd show` says whether there is an index", 19,
    )  # fmt: skip
    SOURCE_REDIRECT = (
        "source_redirect", 58, CuredBy.PUBLISHER, Heals.BY_ITSELF, ExitCode.SOURCE_UNREACHABLE,
        "the server answers with a redirect, which is not followed",
        "publish with the final address as the source; the log of the host that reads it names where it leads", 5,
    )  # fmt: skip
    SOURCE_TLS = (
        "source_tls", 59, CuredBy.STORAGE, Heals.BY_ITSELF, ExitCode.SOURCE_UNREACHABLE,
        "the storage's TLS certificate is not one that the host that reads it accepts, or TLS fails there",
        "the log of that host says which: renew the certificate, publish with a name that it has, or name its "
        "authority (`SSL_CERT_FILE`) and restart the seeds' daemons", 14,
    )  # fmt: skip
    READ_LIMIT = (
        "read_limit", 60, CuredBy.HOST, Heals.BY_ITSELF, ExitCode.PARTIAL,
        "the limit of the host that reads storage lets less than a chunk come in some seconds",
        "raise `limits.source_bytes_per_s` there, or `limits.download_bytes_per_s` or the entry of `limits.schedule` "
        "that is in force, then `gossipd reload`; with `net.background` others may use its link", 5,
    )  # fmt: skip
    DISK_SILENT = (
        "disk_silent", 61, CuredBy.DISK, Heals.BY_ITSELF, ExitCode.DISK,
        "the disk does not answer", "see the kernel's log, the device, or the server of a network file system; "
        "`store.detail` names it", 4,
    )  # fmt: skip
    DISK_SLOW = (
        "disk_slow", 62, CuredBy.DISK, Heals.BY_ITSELF, ExitCode.DISK,
        "no write of the disk has ended for some seconds", "see what else writes to it, the device, or the server of a "
        "network file system", 4,
    )  # fmt: skip
    SUPERSEDED = (
        "superseded", 63, CuredBy.PUBLISHER, Heals.NEVER, ExitCode.PARTIAL,
        "its publisher keeps newer versions and not this one (`--keep-last`)", "publish it under a new version", 16,
    )  # fmt: skip


READERS = frozenset(
    reason
    for reason in HostReason
    if reason.value.startswith("source_") or reason.value in ("no_ranges", "object_short", "no_copy", "read_limit")
)
_WRONGLY_SERVED = frozenset({
    HostReason.SOURCE_CHANGED, HostReason.NO_RANGES, HostReason.SOURCE_ENCODED, HostReason.SOURCE_RANGE,
    HostReason.SOURCE_REDIRECT, HostReason.OBJECT_SHORT,
})  # fmt: skip
_BY_WORD = {reason.value: reason for reason in HostReason}
_BY_NUMBER = {reason.number: reason for reason in HostReason}
# By what follows "E_" in an error's code.
_OF_CODES = {
    "SOURCE_AUTH": HostReason.SOURCE_AUTH,
    "SOURCE_KEY": HostReason.SOURCE_AUTH,
    "SOURCE_NO_CREDENTIALS": HostReason.SOURCE_NO_CREDENTIALS,
    "SOURCE_TOKEN_EXPIRED": HostReason.SOURCE_TOKEN_EXPIRED,
    "SOURCE_CLOCK": HostReason.SOURCE_CLOCK,
    "SOURCE_REGION": HostReason.SOURCE_REGION,
    "SOURCE_PAYER": HostReason.SOURCE_ACCOUNT,
    "SOURCE_ACCOUNT": HostReason.SOURCE_ACCOUNT,
    "SOURCE_ENCRYPTED": HostReason.SOURCE_ENCRYPTED,
    "SOURCE_NOT_FOUND": HostReason.SOURCE_GONE,
    "SOURCE_NO_BUCKET": HostReason.SOURCE_GONE,
    "SOURCE_ARCHIVED": HostReason.SOURCE_ARCHIVED,
    "SOURCE_CHANGED": HostReason.SOURCE_CHANGED,
    "SOURCE_LONG": HostReason.SOURCE_CHANGED,
    "SOURCE_HASH": HostReason.SOURCE_CHANGED,
    "SOURCE_TRUNCATED": HostReason.OBJECT_SHORT,
    "SOURCE_SHORT": HostReason.SOURCE_UNREACHABLE,
    "SOURCE_UNREACHABLE": HostReason.SOURCE_UNREACHABLE,
    "SOURCE_SLOW": HostReason.SOURCE_UNREACHABLE,
    "SOURCE_PROXY": HostReason.SOURCE_PROXY,
    "SOURCE_TLS": HostReason.SOURCE_TLS,
    "SOURCE_FORBIDDEN": HostReason.SOURCE_FORBIDDEN,
    "SOURCE_REDIRECT": HostReason.SOURCE_REDIRECT,
    "SOURCE_BUSY": HostReason.SOURCE_BUSY,
    "SOURCE_BUDGET": HostReason.SOURCE_BUDGET,
    "SOURCE_RANGE": HostReason.SOURCE_RANGE,
    "SOURCE": HostReason.SOURCE_REFUSED,
    "SOURCE_NO_RANGES": HostReason.NO_RANGES,
    "SOURCE_WHOLE_ONLY": HostReason.STORAGE,
    "SOURCE_ENCODING": HostReason.SOURCE_ENCODED,
    "NO_SPACE": HostReason.NO_SPACE,
    "WANT": HostReason.WANT,
    "NO_INDEX": HostReason.WANT,
    "INDEX": HostReason.WANT,
    "NO_INODES": HostReason.NO_INODES,
    "CASE_FOLDED": HostReason.CASE_FOLDED,
    "STORE_READ_ONLY": HostReason.DISK_READ_ONLY,
    "STORE_ACCESS": HostReason.DISK_READ_ONLY,
    "STORE_IO": HostReason.DISK_FAILING,
    "STORE_SILENT": HostReason.DISK_SILENT,
    "KEY_UNKNOWN": HostReason.REFUSED_KEY,
    "KEY_NAME": HostReason.REFUSED_KEY,
    "SCHEMA_VERSION": HostReason.REFUSED_SCHEMA,
    "VERSION_TAKEN": HostReason.VERSION_TAKEN,
    "STORE_FORMAT": HostReason.STORE_DAMAGED,
    "STORE_VERSION": HostReason.STORE_DAMAGED,
    "PATH_SYMLINK": HostReason.VERSION_TAKEN,
    "PATH_KIND": HostReason.VERSION_TAKEN,
    "ROLLBACK": HostReason.REFUSED_ROLLBACK,
    "EXPIRED": HostReason.REFUSED_EXPIRED,
    "UNTRUSTED": HostReason.REFUSED_OPERATOR,
    "CLOCK": HostReason.CLOCK_WRONG,
}
_RULES_OF_MANIFESTS = ("E_SOURCE_FORBIDDEN", "E_INDEX")


def reason_of_code(code: str, otherwise: HostReason) -> HostReason:
    """The reason that an error with this code gives a host."""
    return _OF_CODES.get(code.removeprefix("E_"), otherwise)


def reason_of_refusal(code: str) -> HostReason:
    """The reason of a manifest that is refused with this code. Where it breaks a rule of addresses or of indexes, no
    setting of a host cures it, as one does where a host may not read the address of a good one."""
    return HostReason.REFUSED if code in _RULES_OF_MANIFESTS else reason_of_code(code, HostReason.REFUSED)


def reason_of_word(word: str) -> HostReason:
    """The reason with that word; ``OTHER`` when a later version has said it."""
    return _BY_WORD.get(word, HostReason.OTHER)


def reason_of_number(number: int) -> HostReason:
    """The reason with that number; of a later version ``OTHER``, as only its name is lost."""
    return _BY_NUMBER.get(number, HostReason.OTHER)


def told_reason(word: str, *, subject: str, file: str) -> str:
    """A host's reason for people: the file, and whom it is about, a host or a key."""
    words = f"{word} of {file}" if file else word
    if not subject:
        return words
    known = reason_of_word(word)
    if known is HostReason.HOLDER_SILENT:
        return f"{words}, asked {subject}"
    is_of_a_host = known.is_the_readers or known is HostReason.WAITS_FOR_READER
    return f"{words}, says {subject}" if is_of_a_host else f"{words} key={subject[:12]}"
