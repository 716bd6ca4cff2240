"""A trial read: one byte of an object, asked for as a seed asks, outside of any deployment.

What lives here: the question, with the policy on schemes and addresses before it. What does not: which objects are
tried and in whose environment (``cli.storage_readings``), and what an answer means (``diagnosis.checks``).
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from random import Random

from gossipd.manifest.chunk_layout import Segment
from gossipd.manifest.source_policy import SourcePolicy
from gossipd.manifest.source_url import SourceUrl
from gossipd.sources.addresses import Addresses
from gossipd.sources.admission import SourceAdmission
from gossipd.sources.errors import SourceWholeOnlyError
from gossipd.sources.file_stream import FileStream
from gossipd.sources.first_request import touch
from gossipd.sources.hub import HubRoutes
from gossipd.sources.location import Location
from gossipd.sources.pieces import Wanted
from gossipd.sources.settings import SourceSettings
from gossipd.sources.versions import check_size

_FIRST_BYTE = Segment(0, 0, 1)


class TrialReads:
    """Thread-safe. Storage in buckets is asked by a client of its own for each read."""

    def __init__(self, policy: SourcePolicy, settings: SourceSettings) -> None:
        self._source_settings = settings
        self._admission = SourceAdmission(settings, policy=policy, rng=Random(), clock=time.monotonic)
        self._hub = HubRoutes(os.environ, self._admission)

    def read(self, source: SourceUrl, path: str, object_bytes: int) -> None:
        """Read the first byte of the file ``path``, which the manifest says has ``object_bytes``, at least one. Raises
        a SourceError for any other answer: SourceWholeOnlyError where the server has no ranges."""
        location = Location.of(source, path)
        if location.is_on_hub:
            self._hub.lead(location, lambda at, addresses: self._read_at(at, addresses, object_bytes))
        else:
            self._read_at(location, self._admission.admit(source, location.shown), object_bytes)

    def _read_at(self, location: Location, addresses: Addresses, object_bytes: int) -> None:
        if location.is_on_web:
            touched = touch(location, addresses, Wanted(0, 1, object_bytes), self._source_settings)
            check_size(location.shown, found=touched.version.size, expected=object_bytes)
            if touched.lacks_ranges:
                raise SourceWholeOnlyError(location.shown, "the server sends the whole object for a part of it")
            return
        if location.source.scheme == "file":
            settings = self._source_settings
            stream = FileStream(location, _FIRST_BYTE, whole=False, settings=settings, clock=time.monotonic)
            with closing(stream):
                check_size(location.shown, found=stream.version.size, expected=object_bytes)
                list(stream)
            return
        from gossipd.sources.obstore_clients import Clients

        clients = Clients(self._source_settings)
        with closing(clients.stream(location, _FIRST_BYTE, whole=False, clock=time.monotonic)) as bucket:
            check_size(location.shown, found=bucket.version.size, expected=object_bytes)
            list(bucket)
