"""MLflow runs that refer to versions, and MLflow loading them from this host: ``pip install gossipd[mlflow]``.

What lives here: a reference in a run, the run's place in a version's ``about``, and the artifact repository for
``gossipd:/NAME/VERSION``, which MLflow finds by its entry point. What does not: moving bytes: MLflow stores none of a
version, the daemon of each host delivers it. Nothing else of gossipd imports this, or MLflow.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import mlflow
from mlflow.entities import FileInfo
from mlflow.store.artifact.artifact_repo import ArtifactRepository

from gossipd.client.client import Client, Publication, Version
from gossipd.core.errors import NotFoundError, UsageError

SCHEME = "gossipd"
ARTIFACT = "gossipd/{name}@{version}.json"
TAGS = ("gossipd.uri", "gossipd.id")


def uri_of(name: str, version: int) -> str:
    """``gossipd:/NAME/VERSION``: a source for MLflow's registry, too."""
    return f"{SCHEME}:/{quote(name)}/{version}"


def log_reference(made: Publication | Version, *, run_id: str | None = None, client: Any = None) -> str:
    """Write into a run which version it has made: the artifact ``gossipd/NAME@VERSION.json`` and the tags
    ``gossipd.uri`` and ``gossipd.id`` of the last one. Returns the URI.

    Args:
        made: what ``Client.publish`` or ``wait`` has returned.
        run_id: the run; without it the active one.
        client: an ``MlflowClient``; without it one of the tracking URI that is set.
    Raises:
        UsageError: no run is given, and none is active. MlflowException: as MLflow says.
    """
    run = _run_id(run_id)
    tracking = client or mlflow.MlflowClient()
    uri = uri_of(made.name, made.version)
    reference = {
        "uri": uri, "name": made.name, "version": made.version, "id": made.id, "bytes_total": made.bytes_total
    }  # fmt: skip
    file = ARTIFACT.format(name=made.name.replace("/", "--"), version=made.version)
    tracking.log_dict(run, reference, file)
    for tag, value in zip(TAGS, (uri, made.id), strict=True):
        tracking.set_tag(run, tag, value)
    return uri


def about_run(run_id: str | None = None, *, client: Any = None) -> dict[str, Any]:
    """The run for a version's ``about``: its name, and the ids under ``mlflow``. Raises as ``log_reference``."""
    run = (client or mlflow.MlflowClient()).get_run(_run_id(run_id))
    ids = {"run_id": run.info.run_id, "experiment_id": run.info.experiment_id}
    return {"run": run.info.run_name, "mlflow": ids}


def _run_id(given: str | None) -> str:
    if given is not None:
        return given
    active = mlflow.active_run()
    if active is None:
        raise UsageError("no MLflow run is active; give run_id")
    return str(active.info.run_id)


class GossipdArtifactRepository(ArtifactRepository):
    """Reads complete versions of this host, in place; its daemon is found as ``Client()`` finds it."""

    def _file(self, path: str | None) -> Path:
        """``path`` of this repository on this host's disk. Raises UsageError, NotFoundError; NotThereError where the
        version is not complete here."""
        parts = [*PurePosixPath(unquote(urlsplit(self.artifact_uri).path)).parts, *PurePosixPath(path or "").parts]
        parts = [part for part in parts if part != "/"]
        at = next((number for number, part in enumerate(parts) if number and part.isdecimal()), None)
        if at is None or at > 2 or ".." in parts:
            raise UsageError(f"{self.artifact_uri} must be {SCHEME}:/NAME/VERSION, with a path below it")
        file = Client().path("/".join(parts[:at]), int(parts[at])).joinpath(*parts[at + 1 :])
        if not file.exists():
            raise NotFoundError(f"{'/'.join(parts[:at])}@{parts[at]} has no {'/'.join(parts[at + 1 :])}")
        return file

    def list_artifacts(self, path: str | None = None) -> list[FileInfo]:
        """See ArtifactRepository: of a file none."""
        directory = self._file(path)
        if not directory.is_dir():
            return []
        found = []
        for entry in sorted(os.scandir(directory), key=lambda one: one.name):
            size = None if entry.is_dir() else entry.stat().st_size
            found.append(FileInfo(str(PurePosixPath(path or "", entry.name)), entry.is_dir(), size))
        return found

    def download_artifacts(self, artifact_path: str, dst_path: str | None = None) -> str:
        """See ArtifactRepository; without a destination the place where they lie: hold the version while you use it."""
        if dst_path is None:
            return str(self._file(artifact_path))
        return str(super().download_artifacts(artifact_path, dst_path))

    def _download_file(self, remote_file_path: str, local_path: str) -> None:
        shutil.copyfile(self._file(remote_file_path), local_path)

    def log_artifact(self, local_file: str, artifact_path: str | None = None) -> None:
        """Raises UsageError: a version is signed and never changes."""
        raise UsageError(f"{self.artifact_uri} is written by Client.publish only")

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """Raises UsageError: a version is signed and never changes."""
        raise UsageError(f"{self.artifact_uri} is written by Client.publish only")
