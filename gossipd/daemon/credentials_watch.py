"""Looks each minute when this host's credentials for storage end: the alarm ``E_CREDENTIALS_END``, and a metric.

What lives here: of which storages, how often, and from when on it rings. What does not: what stands in the environment
(``sources.credential_expiry``), and credentials that storage refuses already (a reason of the deployment).

It rings an hour before the end. What another program renews is left to that until its end has passed: so a token of an
hour rings only when nobody renews it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from gossipd.core.timing import CREDENTIAL_LEAST_S
from gossipd.core.units import show_time
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.live_settings import LiveSettings
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.worker_threads import run_blocking
from gossipd.sources.credential_expiry import CredentialFound, credential_found
from gossipd.sources.location import family

LOOK_S = 60.0
CODE = "E_CREDENTIALS_END"


class CredentialsWatch(Struct, eq=False):
    """One per daemon, on the trio loop."""

    live: LiveSettings
    lifecycle: DeploymentTable
    alarms: Alarms
    ends: dict[str, float] = field(default_factory=dict)
    """By scheme, of those whose end is known: seconds since 1970."""

    async def run(self) -> None:
        """Never returns."""
        while True:
            await self.look()
            await until_next_look(LOOK_S)

    async def look(self) -> None:
        """Files are read in a thread: one may lie on a file system that hangs."""
        try:
            found = await run_blocking(_found, self._schemes(), os.environ)
        except (OSError, ImportError, MemoryError):  # of what reads such files, imported by the first; looked at again
            return
        self.take(found, time.time())

    def take(self, found: Mapping[str, CredentialFound], wall_s: float) -> None:
        """What was found, by scheme. ``wall_s``: seconds since 1970."""
        ends = {scheme: one.ends_s for scheme, one in found.items() if one.ends_s is not None}
        self.ends.clear()
        self.ends.update(ends)
        words = [
            f"{scheme} ({found[scheme].place}) {'ended' if end <= wall_s else 'end'} at {show_time(end)}"
            for scheme, end in sorted(ends.items())
            if end - wall_s < (0.0 if found[scheme].is_renewed else CREDENTIAL_LEAST_S)
        ]
        if words:
            self.alarms.ring_as(CODE, f"the credentials of this host's daemon for {'; for '.join(words)}")
        else:
            self.alarms.cured(CODE)

    def _schemes(self) -> frozenset[str]:
        """Of what this host may read: sources of manifests, and what the settings name by an address."""
        sources = self.live.config.sources
        if not sources.enabled:
            return frozenset()
        urls = [url for one in self.lifecycle if one.manifest is not None for url in one.manifest.sources]
        return frozenset(family(url.partition("://")[0]) for url in (*urls, *sources.allow) if "://" in url)


def _found(schemes: Iterable[str], environ: Mapping[str, str]) -> dict[str, CredentialFound]:
    found = {scheme: credential_found(scheme, environ) for scheme in schemes}
    return {scheme: one for scheme, one in found.items() if one is not None}
