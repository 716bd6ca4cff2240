"""Which file paths a manifest may name: relative, plain, portable, and no two that could be one file.

What lives here: the lexical rules. What does not: symbolic links on the disk; the store opens every path beneath its
directory with ``openat2`` and lets the kernel refuse them.

The rules are those of the strictest file system in use, so that every host can store a model that one host can. Paths
are checked as written and never cleaned up: normalising first and checking after is how ``node-tar`` and Go's
``os.Root`` were escaped. Twins are found by NFKC and case folding, as some file systems see them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NoReturn

from gossipd.manifest.errors import ManifestError, shown

PATH_BYTES_MAX = 1024  # macOS PATH_MAX, the smallest in common use
COMPONENT_BYTES_MAX = 255  # NAME_MAX of ext4, XFS, NTFS, APFS
DEPTH_MAX = 32

# Names that Windows resolves to devices, with any extension; and the store's own.
_DEVICES = frozenset(["con", "prn", "aux", "nul", "conin$", "conout$"]) | {
    f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789¹²³"
}
_STORE_PREFIX = ".gossipd"
_STORE_SUFFIX = ".part"
_PLAIN = re.compile(r"[A-Za-z0-9._/-]+", re.ASCII)  # every rule about characters and Unicode holds for these
_FORBIDDEN = '\\:*?"<>|'  # of those, Windows refuses all and `\\` and `:` change the meaning of a path


def check_paths(paths: Sequence[str]) -> None:
    """Check each path, and all together. Raises ManifestError with the first rule broken and ``files[i].path``."""
    files: dict[str, int] = {}
    directories: dict[str, tuple[str, int]] = {}
    for index, path in enumerate(paths):
        check_path(path, f"files[{index}].path")
        folded = _fold(path)
        if folded in files:
            _refuse("E_PATH_COLLISION", f"files[{files[folded]}] and files[{index}] are one file to some file systems")
        files[folded] = index
        _record_parents(path, index, directories)
    for folded, (directory, index) in directories.items():
        if folded in files:
            _refuse("E_PATH_PREFIX", f"{shown(directory)} is both file and directory (files[{index}].path)")


def check_path(path: str, field: str) -> None:
    """One path by itself. Raises ManifestError naming ``field``."""
    if path.startswith("/"):
        _refuse("E_PATH_ABSOLUTE", f"{field} must be relative, not {shown(path)}")
    plain = _PLAIN.fullmatch(path) is not None
    if not plain:
        _check_characters(path, field)
    if len(path) > PATH_BYTES_MAX or (not plain and len(path.encode()) > PATH_BYTES_MAX):
        _refuse("E_PATH_LENGTH", f"{field} is longer than {PATH_BYTES_MAX} bytes")
    components = path.split("/")
    if len(components) > DEPTH_MAX:
        _refuse("E_PATH_LENGTH", f"{field} has {len(components)} components, at most {DEPTH_MAX}")
    for component in components:
        _check_component(component, field)


def _check_characters(path: str, field: str) -> None:
    for character in path:
        category = unicodedata.category(character)
        # Cc, Cf: control and invisible (bidi marks among them); Cs: halves of surrogate pairs; Co, Cn: meaning
        # unknown, so normalisation may change later; Zl, Zp: line breaks. Only the plain space of Zs is allowed.
        if character in _FORBIDDEN or category in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
            _refuse("E_PATH_CHAR", f"{field} contains U+{ord(character):04X}, which is not allowed")
        if category == "Zs" and character != " ":
            _refuse("E_PATH_CHAR", f"{field} contains the space U+{ord(character):04X}, which is not allowed")
    if not unicodedata.is_normalized("NFC", path):
        _refuse("E_PATH_UNICODE", f"{field} {shown(path)} is not NFC")


def _check_component(component: str, field: str) -> None:
    if component in ("", ".", ".."):
        _refuse("E_PATH_COMPONENT", f"{field} has forbidden component {shown(component)}")
    if len(component) > COMPONENT_BYTES_MAX or (not component.isascii() and len(component.encode()) > 255):
        _refuse("E_PATH_LENGTH", f"{field} has a component longer than {COMPONENT_BYTES_MAX} bytes")
    lower = component.lower()
    if component[-1] in ". ":
        _refuse("E_PATH_RESERVED", f"{field} has component {shown(component)}, which ends in a dot or space")
    if lower.partition(".")[0].rstrip(" ") in _DEVICES:
        _refuse("E_PATH_RESERVED", f"{field} has component {shown(component)}, a device name on Windows")
    if lower.startswith(_STORE_PREFIX) or lower.endswith(_STORE_SUFFIX):
        _refuse("E_PATH_RESERVED", f"{field} has component {shown(component)}, which is the store's own")


def _record_parents(path: str, index: int, directories: dict[str, tuple[str, int]]) -> None:
    parent = path.rpartition("/")[0]
    while parent:
        folded = _fold(parent)
        known = directories.setdefault(folded, (parent, index))
        if known[0] != parent:
            _refuse("E_PATH_COLLISION", f"directories of files[{known[1]}] and files[{index}] are one on some systems")
        if known[1] != index:
            return  # its parents were recorded with it
        parent = parent.rpartition("/")[0]


def _fold(path: str) -> str:
    if path.isascii():
        return path.lower()
    # Folding can undo the form and the form can undo folding; twice is enough (Unicode, section 3.13, D146).
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path.casefold()).casefold())


def _refuse(code: str, message: str) -> NoReturn:
    raise ManifestError(message, code=code)
