"""The path of everything on the disk, relative to the store's directory, and nothing else.

::

    .lock                        held by the daemon that has the store
    .store                       one line: format of this layout
    .manifests/<id>/manifest     the signed envelope, byte for byte
    .manifests/<id>/journal      which chunks are verified (``journal``)
    .manifests/<id>/checked      when each was last read and compared (``scrub``)
    .incoming/<id>/<path>        files of a model that is not whole yet
    .trash/<n>                   what is being deleted
    .pins/<org>%<name>           ``rollback`` was asked for: which version, and above which one it ends
    <name>/<version>/<path>      a complete model
    <name>/current               symbolic link to one of them

``<id>`` is the hexadecimal deployment id, never a name from outside. A model's name cannot begin with a dot and
its second part is neither digits only nor ``current`` (``core/names``), so nothing here can collide.
"""

from __future__ import annotations

from gossipd.core.ids import DeploymentId

LOCK = ".lock"
MARKER = ".store"
MANIFESTS = ".manifests"
INCOMING = ".incoming"
TRASH = ".trash"
PINS = ".pins"
PROBE = ".probe"
DIRECTORIES = (MANIFESTS, INCOMING, TRASH, PINS)


def state(deployment: DeploymentId) -> str:
    """What is kept about a model, whole or not."""
    return f"{MANIFESTS}/{deployment.hex()}"


def envelope(deployment: DeploymentId) -> str:
    """The signed manifest."""
    return f"{state(deployment)}/manifest"


def journal(deployment: DeploymentId) -> str:
    """The record of verified chunks."""
    return f"{state(deployment)}/journal"


def checked(deployment: DeploymentId) -> str:
    """The times of the last check of each chunk."""
    return f"{state(deployment)}/checked"


def incoming(deployment: DeploymentId) -> str:
    """The tree of a model that is not whole yet."""
    return f"{INCOMING}/{deployment.hex()}"


def version(name: str, number: int) -> str:
    """The tree of a complete model."""
    return f"{name}/{number}"


def current(name: str) -> str:
    """The link that users follow."""
    return f"{name}/current"


def next_current(name: str) -> str:
    """The link before it is renamed over the old one."""
    return f"{name}/.current.part"


def pin(name: str) -> str:
    """The note of a rollback. ``%`` is not allowed in names, so this is one to one."""
    return f"{PINS}/{name.replace('/', '%')}"
