"""The library for jobs: ``from gossipd.client import Client``.

* ``client`` what a training or serving job asks of its host's daemon: publish, wait, path, latest, hold, events
* ``aio`` the same for coroutines, on any event loop that anyio knows
* ``events`` following what happens
* ``holding`` a version that is not evicted while a process lives
* ``lineage`` what a version came from
* ``publishing_thread`` publications beside a job, in a thread that a fork has for itself
* ``shards`` one version of files that lie on several hosts
* ``arguments`` what a call is given: numbers, texts, ``about``
* ``patience`` how long a call that waits bears a daemon that does not answer
* ``moving`` what is deleted when a directory was moved into a version
* ``errors`` the daemon's refusals as exceptions

It needs only the standard library and runs in any thread and beside any event loop. The daemon does the work: nothing
is hashed under the job's interpreter lock, and the job holds no key. ``API_VERSION`` grows when something is added; it
begins with another number when something that was promised here changes.
"""

from gossipd.client.client import API_VERSION, Ancestor, Client, LocalPart, Publication, Version
from gossipd.client.errors import (
    EndedError,
    NotThereError,
    NotTrustedError,
    OutOfSpaceError,
    TimedOutError,
)
from gossipd.client.events import Event
from gossipd.client.shards import RankFailedError

__all__ = [
    "API_VERSION", "Ancestor", "Client", "EndedError", "Event", "LocalPart", "NotThereError", "NotTrustedError",
    "OutOfSpaceError", "Publication", "RankFailedError", "TimedOutError", "Version",
]  # fmt: skip
