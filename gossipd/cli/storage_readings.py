"""What ``gossipd doctor`` reads of external storage: one byte for each source that this host may have to read.

What lives here: which sources, in the daemon's environment, within some seconds. What does not: the read
(``sources.trial_read``), and which answers are well (``diagnosis.checks``).

Sources are those of the manifests that this host keeps, and those that ``sources.allow`` names in full. Of the latter
no object is known, so one is asked for that is not there: "not found" is the answer of a storage that let us in.

Credentials are those of the daemon's environment (``daemon_environment``), as another shell has others.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossipd.cli.daemon_environment import daemon_environment
from gossipd.cli.disk_readings import read_apart
from gossipd.config.sections import Config
from gossipd.core.errors import GossipdError
from gossipd.daemon.state_dir import MANIFESTS
from gossipd.diagnosis.checks import SourceReading
from gossipd.manifest.envelope import ENVELOPE_BYTES_MAX
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest, open_manifest
from gossipd.manifest.source_policy import SourcePolicy
from gossipd.manifest.source_url import SourceUrl, parse_source_url
from gossipd.runtime.regular_file import read_regular
from gossipd.sources.credential_expiry import credential_found
from gossipd.sources.errors import SourceSlowError
from gossipd.sources.settings import SourceSettings
from gossipd.sources.trial_read import TrialReads

PATIENCE_S = 4.0  # for all of them together
SETTINGS = SourceSettings(connect_timeout_s=2.0, read_timeout_s=3.0, request_timeout_s=PATIENCE_S)
MANIFESTS_MAX = 8  # the newest
SOURCES_MAX = 32
NOT_THERE = "gossipd-doctor"  # the object that is asked for where none is known
_OF_STORAGE = ("AWS_", "GOOGLE_", "AZURE_", "HF_", "SSL_CERT_")


@dataclass(frozen=True, slots=True)
class _Trial:
    """``model``: that whose manifest names the source; empty where only the configuration does."""

    source: SourceUrl
    path: str
    object_bytes: int
    model: str


def read_storage(
    config: Config, trusted: Collection[bytes], daemon_socket: Path | None, *, has_disk: bool = True
) -> tuple[SourceReading, ...]:
    """A reading for each source, in some seconds at most. ``trusted``: keys of publishers. ``has_disk``: whether this
    host's directories answer; where they do not, no manifest is read."""
    trials = _kept_trials(config.file.parent / "state" / MANIFESTS, trusted) if has_disk else []
    in_use = [trial.source for trial in trials]
    trials += [_Trial(url, NOT_THERE, 1, "") for url in named_in_full(config.sources.allow) if not _holds(url, in_use)]
    with environment_of_storage(daemon_environment(daemon_socket)):
        return _tried(TrialReads(SourcePolicy.parse(config.sources.allow), SETTINGS), trials[:SOURCES_MAX])


def _kept_trials(directory: Path, trusted: Collection[bytes]) -> list[_Trial]:
    """Of the manifests in it; none where it has not answered in time."""

    def read() -> dict[str, Any]:
        named = [(url, manifest) for manifest in kept_manifests(directory, trusted) for url in manifest.sources]
        return {"kept": [_named(url, manifest) for url, manifest in named[:SOURCES_MAX]]}

    return [_Trial(parse_source_url(url), *more) for url, *more in read_apart(read).get("kept", ())]


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


@contextmanager
def environment_of_storage(given: Mapping[str, str]) -> Iterator[None]:
    """While it lasts, the variables that lead to storage and its credentials are those that are given."""
    before = {name: value for name, value in os.environ.items() if _is_of_storage(name)}
    _replace(before, {name: value for name, value in given.items() if _is_of_storage(name)})
    try:
        yield
    finally:
        _replace([name for name in os.environ if _is_of_storage(name)], before)


def _is_of_storage(name: str) -> bool:
    return name.startswith(_OF_STORAGE) or name.lower().endswith("_proxy") or name == "HOME"


def _replace(old: Collection[str], new: Mapping[str, str]) -> None:
    for name in old:
        del os.environ[name]
    os.environ.update(new)


def _named(url: str, manifest: Manifest) -> tuple[str, str, int, str]:
    """The fields of a trial: the largest file, as servers that cannot send parts send small files nevertheless."""
    largest = max(manifest.files, key=lambda file: file.size)
    return url, largest.path, largest.size, f"{manifest.name}@{manifest.version_label}"


def _holds(place: SourceUrl, sources: Collection[SourceUrl]) -> bool:
    return any(f"{one.text.rstrip('/')}/".startswith(f"{place.text.rstrip('/')}/") for one in sources)


def _tried(reads: TrialReads, trials: list[_Trial]) -> tuple[SourceReading, ...]:
    """All at once; one that does not end in time counts as silent. Its thread ends with the command."""
    errors: dict[_Trial, GossipdError | None] = {}

    def attempt(trial: _Trial) -> None:
        try:
            reads.read(trial.source, trial.path, trial.object_bytes)
            errors[trial] = None
        except GossipdError as error:
            errors[trial] = error

    deadline = time.monotonic() + PATIENCE_S
    threads = [threading.Thread(target=attempt, args=(trial,), daemon=True) for trial in trials]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    silent = SourceSlowError("storage", f"no answer for {PATIENCE_S:g} s")
    return tuple(_reading(trial, errors.get(trial, silent)) for trial in trials)


def _reading(trial: _Trial, error: GossipdError | None) -> SourceReading:
    code, sentence = ("", "") if error is None else (error.code, str(error.args[0]))
    found = credential_found(trial.source.scheme, os.environ)
    return SourceReading(
        source=trial.source.text, model=trial.model, code=code, sentence=sentence,
        credential="" if found is None else found.place, is_renewed=found is not None and found.is_renewed,
        credential_trouble="" if found is None else found.trouble,
        ends_in_s=None if found is None or found.ends_s is None else found.ends_s - time.time(),
    )  # fmt: skip
