"""What ``gossipd doctor`` reads of external storage: one byte for each source that this host may have to read.

What lives here: which sources, in the daemon's environment. What does not: trying them (``source_trials``), and which
answers are well (``diagnosis.checks``).

Sources are those of the manifests that this host keeps, and those that ``sources.allow`` names in full. Of the latter
no object is known, so one is asked for that is not there: "not found" is the answer of a storage that let us in.

Credentials are those of the daemon's environment (``daemon_environment``), as another shell has others.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gossipd.cli.daemon_environment import daemon_environment
from gossipd.cli.disk_readings import read_apart
from gossipd.cli.source_trials import Trial, TrialOrder, try_sources
from gossipd.config.sections import Config
from gossipd.daemon.state_dir import MANIFESTS
from gossipd.diagnosis.checks import SourceReading
from gossipd.manifest.envelope import ENVELOPE_BYTES_MAX
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest, open_manifest
from gossipd.manifest.source_url import SourceUrl, parse_source_url
from gossipd.runtime.regular_file import read_regular

PATIENCE_S = 4.0  # for all of them together
MANIFESTS_MAX = 8  # the newest
SOURCES_MAX = 32
NOT_THERE = "gossipd-doctor"  # the object that is asked for where none is known
_OF_STORAGE = ("AWS_", "GOOGLE_", "AZURE_", "HF_", "SSL_CERT_")


def read_storage(
    config: Config, trusted: Collection[bytes], daemon_socket: Path | None, *, has_disk: bool = True
) -> tuple[SourceReading, ...]:
    """A reading for each source, in some seconds at most. ``trusted``: keys of publishers. ``has_disk``: whether this
    host's directories answer; where they do not, no manifest is read."""
    allow = config.sources.allow
    trials = _kept_trials(config.file.parent / "state" / MANIFESTS, trusted) if has_disk else []
    in_use = [trial.source for trial in trials]
    trials += [Trial(url.text, NOT_THERE, 1, "") for url in named_in_full(allow) if not _holds(url.text, in_use)]
    order = TrialOrder(allow=tuple(allow), trials=tuple(trials[:SOURCES_MAX]), patience_s=PATIENCE_S)
    return try_sources(order, environment_for_storage(daemon_environment(daemon_socket)))


def _kept_trials(directory: Path, trusted: Collection[bytes]) -> list[Trial]:
    """Of the manifests in it; none where it has not answered in time."""

    def read() -> dict[str, Any]:
        named = [(url, manifest) for manifest in kept_manifests(directory, trusted) for url in manifest.sources]
        return {"kept": [_named(url, manifest) for url, manifest in named[:SOURCES_MAX]]}

    return [Trial(*fields) for fields in read_apart(read).get("kept", ())]


def kept_manifests(directory: Path, trusted: Collection[bytes]) -> list[Manifest]:
    """The newest that this user may read and whose keys are trusted."""
    found: list[tuple[float, Path]] = []
    with suppress(OSError):
        found = [(path.stat().st_mtime, path) for path in directory.iterdir()]
    kept: list[Manifest] = []
    for _, path in sorted(found, reverse=True):
        with suppress(OSError, ManifestError):
            kept.append(open_manifest(read_regular(path, bytes_max=ENVELOPE_BYTES_MAX), trusted))
        if len(kept) == MANIFESTS_MAX:
            break
    return kept


def named_in_full(allowed: Collection[str]) -> list[SourceUrl]:
    """Entries of ``sources.allow`` that lead to one storage: not a scheme alone, and no wildcard."""
    found = []
    for entry in allowed:
        if "://" in entry and "*" not in entry and entry.rstrip("/") != "file:":
            with suppress(ManifestError):  # such as localhost, an entry for an address
                found.append(parse_source_url(entry))
    return found


def environment_for_storage(given: Mapping[str, str]) -> dict[str, str]:
    """This process's, but for the variables that lead to storage and its credentials: those are what is given."""
    own = {name: value for name, value in os.environ.items() if not _is_of_storage(name)}
    return own | {name: value for name, value in given.items() if _is_of_storage(name)}


def _is_of_storage(name: str) -> bool:
    return name.startswith(_OF_STORAGE) or name.lower().endswith("_proxy") or name == "HOME"


def _named(url: str, manifest: Manifest) -> tuple[str, str, int, str]:
    """The fields of a trial: the largest file, as servers that cannot send parts send small files nevertheless."""
    largest = max(manifest.files, key=lambda file: file.size)
    return url, largest.path, largest.size, f"{manifest.name}@{manifest.version_label}"


def _holds(place: str, sources: Collection[str]) -> bool:
    return any(f"{one.rstrip('/')}/".startswith(f"{place.rstrip('/')}/") for one in sources)
