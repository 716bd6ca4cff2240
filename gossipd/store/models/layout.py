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
    .pins/<org>%<name>           a rollback: the version, and the version above which it ends
    <name>/<version>/<path>      a complete model
    <name>/current               symbolic link to one of them

``<id>`` is the hexadecimal deployment id, never a name from outside. A model's name cannot begin with a dot, and its
second part is neither all digits nor ``current`` (``manifest/names``), so no two of these paths collide.
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
PINNED = ".pinned"
DIRECTORIES = (MANIFESTS, INCOMING, TRASH, PINS)


def state(deployment: DeploymentId) -> str:
    """The books of a model, whole or not."""
    return f"{MANIFESTS}/{deployment.hex()}"


def envelope(deployment: DeploymentId) -> str:
    return f"{state(deployment)}/manifest"


def journal(deployment: DeploymentId) -> str:
    return f"{state(deployment)}/journal"


def checked(deployment: DeploymentId) -> str:
    return f"{state(deployment)}/checked"


def incoming(deployment: DeploymentId) -> str:
    return f"{INCOMING}/{deployment.hex()}"


def version(name: str, number: int) -> str:
    return f"{name}/{number}"


def current(name: str) -> str:
    return f"{name}/current"


def next_current(name: str) -> str:
    """The new link, before it is renamed over ``current``."""
    return f"{name}/.current.part"


def pin(name: str) -> str:
    """The note of a rollback. Names contain no ``%``, so this is one to one."""
    return f"{PINS}/{name.replace('/', '%')}"
