"""Which file paths a manifest may name: relative, plain, portable, and no two that could be one file.

What lives here: the lexical rules. What does not: symbolic links on the disk; the store opens every path beneath its
directory with ``openat2`` and lets the kernel refuse them.

The rules are those of the strictest file system in use, so that every host can store a model that one host can. Paths
are checked as written and never cleaned up: normalising first and checking after is how ``node-tar`` and Go's
``os.Root`` were escaped. Twins are found by NFKC and case folding, as some file systems see them; by NFKC alone where
the manifest says that its names differ only in case, and then each host looks whether its disk can hold them. A
character that folds to a text with a slash (``℀``) separates directories there.

A publisher that is trusted must still not be able to keep a host busy. No rule keeps a directory in memory: paths are
sorted by their folded form, where twins, and files of one directory, are neighbours. So the cost is that of the bytes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import islice
from typing import NoReturn

from gossipd.manifest.errors import ManifestError, shown

PATH_BYTES_MAX = 1024  # macOS PATH_MAX, the smallest in common use
COMPONENT_BYTES_MAX = 255  # NAME_MAX of ext4, XFS, NTFS, APFS
DEPTH_MAX = 32
DIRECTORIES_MAX = 200_000  # two for each of the most files
# Of all paths that case folding leaves outside of NFKC; their form costs a hundred times as much as that of others.
FOLDED_CHARS_MAX = 1 << 20
_SORTED_AT_ONCE = 4096  # a sort does not let other threads run
_CHECKED_AT_ONCE = 256

# Names that Windows resolves to devices, with any extension; and the store's own.
_DEVICES = frozenset(["con", "prn", "aux", "nul", "conin$", "conout$"]) | {
    f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789¹²³"
}
_DEVICE = re.compile(r"/(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9¹²³]) *[./]")
_STORE_PREFIX = ".gossipd"
_STORE_SUFFIX = ".part"
_FORBIDDEN = '\\:*?"<>|'  # of those, Windows refuses all and `\\` and `:` change the meaning of a path
_FORBIDDEN_ANY = re.compile(f"[{re.escape(_FORBIDDEN)}]")
_FOLDED_SLASH = re.compile("[/\u2100\u2101\u2105\u2106\uff0f]")  # every character whose folded form has a slash


def check_paths(paths: Sequence[str], *, case_matters: bool = False) -> None:
    """Check each path, and all together. Raises ManifestError with the first rule broken and ``files[i].path``.

    Args:
        case_matters: names that differ only in case are two.
    """
    folded: list[str] = []
    unusual = 0
    for start in range(0, len(paths), _CHECKED_AT_ONCE):
        block = paths[start : start + _CHECKED_AT_ONCE]
        if not _are_plain(block):
            for index, path in enumerate(block, start):
                check_path(path, f"files[{index}].path")
        text = "\n".join(block)  # which no path has
        if text.isascii():
            folded += _comparable(text if case_matters else text.lower()).split("\n")
            continue
        for path in block:
            form = path if case_matters and path.isascii() else None if case_matters else _simply_folded(path)
            if form is None:
                form = unicodedata.normalize("NFKC", path) if case_matters else _folded(path)
                unusual += len(form)
                if unusual > FOLDED_CHARS_MAX:
                    _refuse("E_LIMIT", f"characters that need normalising={unusual} max={FOLDED_CHARS_MAX}")
            folded.append(_comparable(form))
    _check_together(paths, folded)


def _comparable(form: str) -> str:
    return form.replace("/", "\0")  # which sorts before all that a name may have


def _check_together(paths: Sequence[str], folded: Sequence[str]) -> None:
    """Compare every path with its neighbour in the order of the folded forms."""
    directories, before, last = 0, -1, ""
    for index in _in_order(folded):
        form, path = folded[index], paths[index]
        if form.startswith(last) and before >= 0:
            if form == last:
                _refuse("E_PATH_COLLISION", f"files[{before}] and files[{index}] are one file to some file systems")
            if form[len(last)] == "\0":
                _refuse("E_PATH_PREFIX", f"{shown(paths[before])} is both file and directory (files[{index}].path)")
        end = form.rfind("\0") + 1  # of the deepest directory, then of the deepest that the neighbour is in, too
        while end and not last.startswith(form[:end]):
            directories += 1
            end = form.rfind("\0", 0, end - 1) + 1
        if directories > DIRECTORIES_MAX:
            _refuse("E_LIMIT", f"directories>{DIRECTORIES_MAX} max={DIRECTORIES_MAX}")
        if end and _head(path, form, end) != _head(paths[before], last, end):
            both = f"files[{min(before, index)}] and files[{max(before, index)}]"
            _refuse("E_PATH_COLLISION", f"directories of {both} are one on some systems")
        before, last = index, form


def _in_order(folded: Sequence[str]) -> list[int]:
    """Indices by folded form. Blocks first, so that the last sort has only a few runs to merge."""
    order: list[int] = []
    for start in range(0, len(folded), _SORTED_AT_ONCE):
        block = range(start, min(start + _SORTED_AT_ONCE, len(folded)))
        order += sorted(block, key=folded.__getitem__)
    return sorted(order, key=folded.__getitem__)


def _head(path: str, form: str, end: int) -> str:
    """What of ``path`` became the directory ``form[:end]``."""
    if path.isascii():
        return path[:end]
    slashes = _FOLDED_SLASH.finditer(path)
    return path[: next(islice(slashes, form.count("\0", 0, end) - 1, None)).end()]


def _are_plain(paths: Sequence[str]) -> bool:
    """Whether no path breaks a rule by itself, asked of all at once: their components are those of the joined text."""
    text = "/".join(paths)
    if not text.isprintable() or _FORBIDDEN_ANY.search(text) or not unicodedata.is_normalized("NFC", text):
        return False
    raw = paths if text.isascii() else [path.encode() for path in paths]
    longest = max(map(len, raw))
    is_long = longest > COMPONENT_BYTES_MAX and max(map(len, text.encode().split(b"/"))) > COMPONENT_BYTES_MAX
    is_deep = max(path.count("/") for path in paths) >= DEPTH_MAX
    return longest <= PATH_BYTES_MAX and not (is_long or is_deep) and _is_portable(text)


def check_path(path: str, field: str) -> None:
    """One path by itself. Raises ManifestError naming ``field``."""
    if path.startswith("/"):
        _refuse("E_PATH_ABSOLUTE", f"{field} must be relative, not {shown(path)}")
    # Printable is all but control, invisible (bidi marks among them), surrogate, unassigned and private characters
    # (normalisation may change those later), line breaks, and spaces other than the plain one.
    if not path.isprintable() or _FORBIDDEN_ANY.search(path):
        _refuse_character(path, field)
    if not unicodedata.is_normalized("NFC", path):
        _refuse("E_PATH_UNICODE", f"{field} {shown(path)} is not NFC")
    raw = path.encode()
    if len(raw) > PATH_BYTES_MAX:
        _refuse("E_PATH_LENGTH", f"{field} is longer than {PATH_BYTES_MAX} bytes")
    if raw.count(b"/") >= DEPTH_MAX:
        _refuse("E_PATH_LENGTH", f"{field} has {raw.count(b'/') + 1} components, at most {DEPTH_MAX}")
    is_long = len(raw) > COMPONENT_BYTES_MAX and max(map(len, raw.split(b"/"))) > COMPONENT_BYTES_MAX
    if is_long or not _is_portable(path):
        for component in path.split("/"):
            _check_component(component, field)


def _refuse_character(path: str, field: str) -> NoReturn:
    found = next(one for one in path if one in _FORBIDDEN or not one.isprintable())
    word = "the space " if unicodedata.category(found) == "Zs" else ""
    _refuse("E_PATH_CHAR", f"{field} contains {word}U+{ord(found):04X}, which is not allowed")


def _is_portable(path: str) -> bool:
    """Whether no component breaks a rule other than its length, asked of all at once."""
    framed = f"/{path.lower()}/"
    return not (
        "//" in framed
        or "./" in framed
        or " /" in framed
        or f"/{_STORE_PREFIX}" in framed
        or f"{_STORE_SUFFIX}/" in framed
        or _DEVICE.search(framed)
    )


def _check_component(component: str, field: str) -> None:
    if component in ("", ".", ".."):
        _refuse("E_PATH_COMPONENT", f"{field} has forbidden component {shown(component)}")
    if len(component.encode()) > COMPONENT_BYTES_MAX:
        _refuse("E_PATH_LENGTH", f"{field} has a component longer than {COMPONENT_BYTES_MAX} bytes")
    lower = component.lower()
    if component[-1] in ". ":
        _refuse("E_PATH_RESERVED", f"{field} has component {shown(component)}, which ends in a dot or space")
    if lower.partition(".")[0].rstrip(" ") in _DEVICES:
        _refuse("E_PATH_RESERVED", f"{field} has component {shown(component)}, a device name on Windows")
    if lower.startswith(_STORE_PREFIX) or lower.endswith(_STORE_SUFFIX):
        _refuse("E_PATH_RESERVED", f"{field} has component {shown(component)}, which is the store's own")


def _simply_folded(path: str) -> str | None:
    """The form by which twins are found, where it needs no normalisation."""
    if path.isascii():
        return path.lower()
    form = path.casefold()
    return form if unicodedata.is_normalized("NFKC", form) and form.casefold() == form else None


def _folded(path: str) -> str:
    # Folding can undo the form and the form can undo folding; twice is enough (Unicode, section 3.13, D146).
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path.casefold()).casefold())


def _refuse(code: str, message: str) -> NoReturn:
    raise ManifestError(message, code=code)
