"""What looks wrong in a tree that is about to be published.

What lives here: judging a listing, with a few small reads that the caller lends. What does not: finding and reading
files, and what follows from a finding (``publisher``: a warning, or a refusal with ``--strict``).

A publisher signs what lies there, and a thousand hosts take it. So what is plainly no model is said before it is
hashed: a file that stands for another (Git LFS, git-annex, DVC), a message in place of a file, remains of a download,
shards that an index names and nobody has, a safetensors file that its own header contradicts. Nothing is unpickled or
repaired. Reads are bounded, so that a tree in storage costs some requests for each weight file.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from typing import Any, Protocol

from msgspec import Struct

from gossipd.manifest.errors import shown
from gossipd.publish.safetensors_header import HeaderError, HeaderReader
from gossipd.publish.selection import DEFAULT_EXCLUDES, UNFINISHED_EXCLUDES, Selection

FINDINGS_MAX = 1000
POINTER_BYTES_MAX = 1024  # the specification's bound for a pointer
SMALL_READS_MAX = 2000  # a minute, where storage takes 30 ms for each
INDEX_BYTES_MAX = 64 * 1024 * 1024  # DeepSeek-V3's index has 9 MB
# How a small file begins that stands for another: the kind of finding, whose pointer it is, what brings the file.
_POINTERS = (
    (b"version https://git-lfs.github.com/spec/", "lfs_pointer", "a Git LFS pointer", "run 'git lfs pull' there"),
    (b"version https://hawser.github.com/spec/", "lfs_pointer", "a Git LFS pointer", "run 'git lfs pull' there"),
    (b"/annex/objects/", "annex_pointer", "a git-annex pointer", "run 'git annex get' there"),
    (b"# xet version", "xet_pointer", "a pointer of git-xet", "run 'git xet checkout' there"),
)
_PAGE = re.compile(rb"[\s\xef\xbb\xbf]*(?:<!doctype|<html|<\?xml|\{\s*\"(?:errors?|message|detail)\")", re.IGNORECASE)
_ERROR_OBJECT = re.compile(rb"\{\s*\"errors?\"")
_TEXT = frozenset(b"\t\n\r") | frozenset(range(0x20, 0x7F))
_WEIGHTS = (
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".ggml", ".onnx", ".h5", ".msgpack", ".npz", ".npy",
    ".tflite", ".pb", ".distcp", ".mlmodel", ".engine", ".plan", ".nemo",
)  # fmt: skip
_BEGINNINGS = {".gguf": b"GGUF", ".npy": b"\x93NUMPY", ".npz": b"PK"}
_NEVER_ZEROS = (".pt", ".pth", ".ckpt", ".onnx", ".h5", ".tflite", ".nemo")  # formats with a magic number
_INDEX = re.compile(r".*\.(?:safetensors|bin)\.index(?:\.[\w-]+)?\.json")
_SHORT_SHARD_TEXT = re.compile(rb"\x8c(.)(__\d{1,9}_\d{1,9}\.distcp)", re.DOTALL)
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})(?P<ending>\.[a-z]+)")
# What rsync and the AWS command line call a file until it is whole: .NAME.xxxxxx, NAME.hhhhhhhh.
_TEMPORARY = re.compile(r"(?:.*/)?(?:\.[^/]+(\.\w+)\.[A-Za-z0-9]{6}|[^/]+(\.\w+)\.[0-9a-fA-F]{8})")
_COPY = re.compile(
    r"(?P<before>.+)\.(?:lock|bak|backup|old|orig|save|copy|\d{1,3})"  # a tool's; wget's are numbers
    r"|(?P<stem>.+?)(?: ?\(\d{1,3}\)| - [Cc]opy| copy)(?P<ending>\.\w+)"  # a browser's and a desktop's
)
_CREDENTIALS = (
    ".netrc", "_netrc", ".git-credentials", "token", "stored_tokens", ".env", ".env.*", "id_rsa", "id_dsa", "id_ecdsa",
    "id_ed25519", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", ".npmrc", ".pypirc", ".htpasswd", ".pgpass",
    "kubeconfig", "credentials", "credentials.json", "client_secret*.json", "service[_-]account*.json",
    "application_default_credentials.json", ".boto", ".s3cfg", ".dockercfg", "rclone.conf", ".vault-token", "*.ppk",
    "*.jks", "secrets.toml", "secrets.json", "secrets.y*ml", "*.env", "*.keytab", "id_ecdsa_sk", "id_ed25519_sk",
    "*[-_.]token", "*[-_.]token.txt", "token.txt", "api[-_]key*", "*[-_.]api[-_]key*", "kaggle.json", ".databrickscfg",
    ".wgetrc", ".curlrc", "accesstokens.json", "auth.json", "credentials.*", "*accesskeys.csv", "rootkey.csv", "passwd",
    "passwords*", "password.txt", ".my.cnf", ".dockerconfigjson", "*.tfstate", ".terraformrc", "cookies.txt",
    "cookies.sqlite", ".cookies", ".vault[-_]pass*", "*[-_]key", "*[-_]key.txt", "*[-_]key.json", "*_history",
    f"*-{'[0-9a-f]' * 12}.json",  # as Google names a service account's key
)  # fmt: skip
_CREDENTIAL = re.compile("|".join(map(translate, _CREDENTIALS)))
_CREDENTIAL_DIRECTORIES = (
    ".ssh/", ".aws/", ".gnupg/", ".kube/", ".docker/", ".azure/", ".kaggle/", ".config/gcloud/", ".oci/", ".config/gh/",
    ".modelscope/credentials/", ".credentials/",
)  # fmt: skip


class ListedFile(Protocol):
    """One file of the listing."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...


class PieceReader(Protocol):
    """Reads ``length`` bytes at ``offset`` of the file with this index; they are there."""

    def __call__(self, index: int, offset: int, length: int, /) -> bytes: ...


class Finding(Struct, frozen=True):
    """One thing that looks wrong. ``kind`` is stable, for scripts; ``says`` has the cure."""

    kind: str
    path: str
    says: str

    @property
    def sentence(self) -> str:
        return f"{shown(self.path)} {self.says}"

    @property
    def as_dict(self) -> dict[str, str]:
        """The finding for ``--json``."""
        return {"kind": self.kind, "path": self.path, "says": self.says}


def inspect(files: Sequence[ListedFile], left_out: Mapping[str, int], read: PieceReader) -> tuple[Finding, ...]:
    """At most 1,000 findings, by kind of look and then in the order of the listing. Raises: the exceptions of
    ``read``."""
    tree = _Tree(files, read)
    found: list[Finding] = []
    looks = tree.contents(), tree.copies(), tree.absent(), tree.written_shards(), tree.shard_counts(), tree.indexes()
    for look in (_names(files), _remains(left_out), *looks):
        for one in look:
            if len(found) == FINDINGS_MAX:
                return tuple(found)
            found.append(one)
    return tuple(found)


def _names(files: Sequence[ListedFile]) -> Iterator[Finding]:
    rubbish = Selection(defaults=DEFAULT_EXCLUDES)
    for file in files:
        name = file.path.rpartition("/")[2]
        if f"/{file.path}".find("/.git/") >= 0:
            yield Finding("git_directory", file.path, "is Git's own, and may hold credentials; --exclude '.git/'")
        elif (found := _TEMPORARY.fullmatch(file.path)) and (found[1] or found[2]).lower() in _WEIGHTS:
            says = "is a copy that has not ended, by its name; end it, or --exclude it"
            yield Finding("unfinished_download", file.path, says)
        elif not rubbish.admits(file.path):
            yield Finding("tool_remains", file.path, "is what a tool left behind, no part of a model; --exclude it")
        if _holds_credentials(file.path, name):
            yield Finding("credentials", file.path, "holds credentials, by its name; every host would get it")


def _holds_credentials(path: str, name: str) -> bool:
    lower = name.lower()
    if any(f"/{directory}" in f"/{path}" for directory in _CREDENTIAL_DIRECTORIES):
        return not lower.endswith(".pub")
    return _CREDENTIAL.match(lower) is not None or path.endswith(".git/config")


def _remains(left_out: Mapping[str, int]) -> Iterator[Finding]:
    for pattern, count in left_out.items():
        if pattern in UNFINISHED_EXCLUDES:
            files = "a file" if count == 1 else f"{count} files"
            yield Finding(
                "unfinished_download",
                pattern,
                f"matches {files} of a download that has not ended; end it, or delete them",
            )


class _Tree:
    """One listing, with what its small reads told."""

    def __init__(self, files: Sequence[ListedFile], read: PieceReader) -> None:
        self._files = files
        self._read = read
        self._reads = 0
        self._sizes = {file.path: file.size for file in files}
        self._tensors: dict[str, frozenset[str]] = {}
        self._stand_ins: set[str] = set()  # paths of pointers and pages, of which nothing else is told

    def contents(self) -> Iterator[Finding]:
        """What the first bytes of files say."""
        for index, file in enumerate(self._files):
            weights = file.path.lower().endswith(_WEIGHTS)
            if file.size == 0:
                if weights:
                    yield Finding("empty_weights", file.path, "has no bytes; it was not downloaded or not written")
                continue
            if self._reads >= SMALL_READS_MAX or not (weights or file.size <= POINTER_BYTES_MAX):
                continue
            self._reads += 1
            if file.path.endswith(".safetensors") and file.size > POINTER_BYTES_MAX:
                yield from self._safetensors(index, file)
            else:
                yield from self._head(index, file, weights=weights)

    def _head(self, index: int, file: ListedFile, *, weights: bool) -> Iterator[Finding]:
        path, is_small, is_json = file.path, file.size <= POINTER_BYTES_MAX, file.path.endswith(".json")
        head = self._read(index, 0, file.size if is_small and is_json else min(file.size, 64))
        if is_small and (found := next((row for row in _POINTERS if head.startswith(row[0])), None)):
            _, kind, what, cure = found
            self._stand_ins.add(path)
            yield Finding(kind, path, f"is {what}, not the file itself; {cure}")
        elif (weights and _PAGE.match(head)) or (is_small and is_json and _is_message(head)):
            self._stand_ins.add(path)
            yield Finding("error_page", path, "is a web page or an error message, not the file; download it again")
        elif path.endswith(".safetensors"):
            yield from self._safetensors(index, file)
        elif weights and is_small and _TEXT.issuperset(head):
            says = "is a short text, no weights: it stands for another file, or is a message; put the file itself there"
            yield Finding("text_weights", path, says)
        elif weights and not _may_begin(path.lower(), head):
            says = "does not begin as a file of its kind does: it is damaged, or its download has not ended"
            yield Finding("wrong_format", path, says)

    def _safetensors(self, index: int, file: ListedFile) -> Iterator[Finding]:
        reader = HeaderReader(file.size, lambda offset, length: self._read(index, offset, length))
        try:
            self._tensors[file.path] = reader.tensor_names()
        except HeaderError as error:
            yield Finding("safetensors_header", file.path, f"{error}; it was cut off or is damaged")

    def copies(self) -> Iterator[Finding]:
        """A second copy beside weights, by its name: ``m.bin.1``, ``m.bin.bak``, ``m (1).bin``, and locks."""
        for file in self._files:
            found = _COPY.fullmatch(file.path)
            own = found and (found["before"] or f"{found['stem']}{found['ending']}")
            if own and own.lower().endswith(_WEIGHTS) and own in self._sizes:
                says = f"is a second copy of {shown(own)}, or a tool's mark, by its name; --exclude it"
                yield Finding("tool_remains", file.path, says)

    def absent(self) -> Iterator[Finding]:
        """What a file beside it says is there."""
        directories = {path[:at] for path in self._sizes for at, character in enumerate(path) if character == "/"}
        for file in self._files:
            there, is_dvc = file.path.removesuffix(".dvc"), file.path.endswith(".dvc")
            if is_dvc and not there.endswith("/") and there and there not in self._sizes and there not in directories:
                yield Finding("dvc_pointer", file.path, "stands for a file that is not there; run 'dvc pull' there")
        for base in sorted({path[: path.rfind("/") + 1] for path in self._sizes if path.endswith(".distcp")}):
            if f"{base}.metadata" not in self._sizes:
                says = "is not there, and no .distcp file beside it can be read without it; save or copy them again"
                yield Finding("metadata_missing", f"{base}.metadata", says)

    def written_shards(self) -> Iterator[Finding]:
        """What the ``.metadata`` of torch DCP names. It is a pickle, which is only searched for texts of that form: a
        short text is its code, its length in one byte, and its UTF-8."""
        for index, file in enumerate(self._files):
            base, _, name = file.path.rpartition("/")
            if name != ".metadata" or not 0 < file.size <= INDEX_BYTES_MAX:
                continue
            texts = _SHORT_SHARD_TEXT.finditer(self._read(index, 0, file.size))
            named = {text[2].decode() for text in texts if text[1][0] == len(text[2])}
            yield from self._missing(file.path, base and f"{base}/", named)

    def _missing(self, path: str, base: str, shards: Iterable[str]) -> Iterator[Finding]:
        """Shards beside it that a file names and nobody has."""
        absent = sorted(name for name in shards if base + name not in self._sizes)
        if absent:
            more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
            names = ", ".join(map(shown, absent[:3]))
            yield Finding("shard_missing", path, f"names shards that are not there: {names}{more}")

    def shard_counts(self) -> Iterator[Finding]:
        """``NAME-00001-of-00003`` without all of its kind."""
        numbers: dict[tuple[str, str, str], set[int]] = defaultdict(set)
        for file in self._files:
            if found := _SHARD.fullmatch(file.path):
                numbers[found["stem"], found["total"], found["ending"]].add(int(found["number"]))
        for (stem, total, ending), there in numbers.items():
            # Both ways of counting are in use: from 1 (transformers) and from 0.
            if len(there) != int(total) or max(there) - min(there) != int(total) - 1:
                name = f"{stem}-*-of-{total}{ending}"
                yield Finding("shard_count", name, f"is {len(there)} of {int(total)} shards; the others are missing")

    def indexes(self) -> Iterator[Finding]:
        """An index that names what is not there."""
        for index, file in enumerate(self._files):
            if not _INDEX.fullmatch(file.path) or file.size > INDEX_BYTES_MAX:
                continue
            shards = _weight_map(self._read(index, 0, file.size)) if file.size else None
            if shards is None:
                if file.path not in self._stand_ins:
                    yield Finding("index_broken", file.path, "is no index of shards: its weight_map cannot be read")
                continue
            base = file.path[: file.path.rfind("/") + 1]
            yield from self._missing(file.path, base, shards)
            for name, tensors in shards.items():
                own = self._tensors.get(base + name)
                if own is not None and not tensors <= own:
                    lacks = shown(min(tensors - own))
                    yield Finding(
                        "shard_differs", base + name, f"lacks tensors that {shown(file.path)} says are in it: {lacks}"
                    )


def _is_message(text: bytes) -> bool:
    """Whether a small ``.json`` is a page or words such as ``Entry not found``. Comments in JSON are none."""
    text = text.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] in (b"", b"{", b"[", b"/"):
        return _ERROR_OBJECT.match(text) is not None
    if not _TEXT.issuperset(text):
        return text.startswith(b"<")
    try:
        json.loads(text)
    except ValueError:
        return True
    return False


def _may_begin(path: str, head: bytes) -> bool:
    """Whether a file of weights of this name may begin so."""
    wanted = next((begin for ending, begin in _BEGINNINGS.items() if path.endswith(ending)), b"")
    is_zeros = not head.strip(b"\0")
    never = path.endswith(_NEVER_ZEROS) or path.rpartition("/")[2].startswith("pytorch_model")
    return head.startswith(wanted) and not (is_zeros and never)


def _weight_map(text: bytes) -> dict[str, set[str]] | None:
    """The tensors of each shard, or None when it is no index."""
    try:
        entry: Any = json.loads(text)
        shards: dict[str, set[str]] = defaultdict(set)
        for tensor, shard in entry["weight_map"].items():
            if not isinstance(shard, str):
                return None
            shards[shard].add(tensor)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
    return dict(shards)
