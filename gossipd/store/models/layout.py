"""The path of everything on the disk, relative to the store's directory.

::

    .lock                        locked by the daemon that uses the store
    .store                       one line: the format of this layout
    .manifests/<id>/manifest     the signed envelope, byte for byte
    .manifests/<id>/journal      which chunks are verified (``journal``)
    .manifests/<id>/checked      when each chunk was last read and compared (``scrub``)
    .incoming/<id>/<path>        files of a model that is not whole yet
    .trash/<n>                   what is being deleted
    .pinned                      models that the operator keeps, a line each (``pins``)
    .pins/<org>%<name>           what was said of the current version (``version_choice``); with ``%%part``, of parts
    .manifests/<id>/part         which part of a model lies here, without it all (``part_note``)
    .manifests/<id>/signed/<n>   the signed beginning of a file of which another is shown (``placement``)
    <name>/<version>/<path>      a complete model
    <name>/<version>.part-<8 hex>/<path>    a part of one; the digits are of the want
    <name>/current               symbolic link to a complete model
    <name>/current.part          symbolic link to a part

``<id>`` is the hexadecimal deployment id, never a name from outside. A model's name cannot begin with a dot, and its
second part is neither all digits nor ``current`` (``manifest/names``), so no two of these paths collide.
"""

from __future__ import annotations

from gossipd.core.ids import DeploymentId
from gossipd.manifest.manifest import Manifest
from gossipd.parts.want import Want

LOCK = ".lock"
MARKER = ".store"
MANIFESTS = ".manifests"
INCOMING = ".incoming"
TRASH = ".trash"
ROLLBACK_NOTES = ".pins"
PROBE = ".probe"
PINS = ".pinned"
PART = ".part-"
DIRECTORIES = (MANIFESTS, INCOMING, TRASH, ROLLBACK_NOTES)


def state(deployment: DeploymentId) -> str:
    """The books of a model, whole or not."""
    return f"{MANIFESTS}/{deployment.hex()}"


def envelope(deployment: DeploymentId) -> str:
    return f"{state(deployment)}/manifest"


def journal(deployment: DeploymentId) -> str:
    return f"{state(deployment)}/journal"


def checked(deployment: DeploymentId) -> str:
    return f"{state(deployment)}/checked"


def part_note(deployment: DeploymentId) -> str:
    return f"{state(deployment)}/part"


def signed(deployment: DeploymentId) -> str:
    return f"{state(deployment)}/signed"


def incoming(deployment: DeploymentId) -> str:
    return f"{INCOMING}/{deployment.hex()}"


def version(name: str, number: int) -> str:
    return f"{name}/{number}"


def place(manifest: Manifest, want: Want) -> str:
    """Where users find a model, or the part of it that ``want`` means."""
    return place_of(manifest.name, manifest.version, want)


def place_of(name: str, number: int, want: Want) -> str:
    """As ``place``, without the manifest."""
    return version(name, number) if want.is_everything else f"{version(name, number)}{PART}{want.mark}"


def current(name: str) -> str:
    return f"{name}/current"


def current_part(name: str) -> str:
    return f"{name}/current.part"


def next_current(name: str) -> str:
    """A new link, before it is renamed over ``current`` or ``current.part``."""
    return f"{name}/.current.part"


def rollback_note(name: str, *, part: bool = False) -> str:
    """What was said of the current version, of complete ones or of ``part`` s. Names contain no ``%``, so this is one
    to one."""
    return f"{ROLLBACK_NOTES}/{name.replace('/', '%')}" + "%%part" * part
