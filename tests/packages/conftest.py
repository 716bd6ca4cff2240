"""The unpacked image, for all that run it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packages.hosts import package, run


def blob(image: Path, digest: str) -> Path:
    return image / "blobs" / digest.replace(":", "/")


def load(image: Path, digest: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(blob(image, digest).read_text())
    return found


def manifest_digest(archive: Path) -> str:
    """What an image is pulled by."""
    index = json.loads(run("tar", "-xOf", archive, "index.json").stdout)
    found: str = index["manifests"][0]["digest"]
    return found


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The unpacked root, and the image's configuration."""
    place = tmp_path_factory.mktemp("image")
    (place / "oci").mkdir()
    run("tar", "-C", place / "oci", "-xf", package("tar"))
    manifest = load(place / "oci", manifest_digest(package("tar")))
    (place / "root").mkdir()
    for layer in manifest["layers"]:
        run("tar", "--same-owner", "-C", place / "root", "-xf", blob(place / "oci", layer["digest"]))
    yield place / "root", load(place / "oci", manifest["config"]["digest"])["config"]
    shutil.rmtree(place)
