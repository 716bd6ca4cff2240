"""Storage: what may be read, and a reader before a server that lies and another that nobody may read.

Real: the policy, the reader, connections on loopback. Made up: the store, which keeps only what hashes right.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from typing import Any

from gossipd.manifest.source_policy import SourcePolicy
from tests.attacks.builders.source import BODY, Lie, Named
from tests.attacks.pure.gossip import any_stage
from tests.attacks.stage import Stage
from tests.gossipd.sources.models import sign
from tests.gossipd.sources.raw import partial, raw_server
from tests.gossipd.sources.test_reader import PATIENT, Seat


class SourceSurface:
    """See Surface."""

    def __init__(self) -> None:
        self._codes: Counter[str] = Counter()
        self._stored: set[int] = set()
        self._heard: list[bytes] = []
        self.payload_bytes = 0

    @property
    def stage(self) -> Stage:
        """See Surface."""
        return any_stage()

    def deliver(self, made: Named | Lie) -> None:
        """See Surface."""
        if isinstance(made, Named):
            policy = SourcePolicy.parse(list(made.allow))
            policy.check_addresses(policy.check(made.url), list(made.addresses))
            self._codes["allowed"] += 1
            return
        with self._forbidden() as port, raw_server(lambda start, stop: made.answer(start, stop, port)) as url:
            seat = Seat(sign({"a.bin": BODY}, url), allow=[url], settings=PATIENT)
            outcome = seat.read()
            seat.reader.close()
        self._codes.update(error.code for error in outcome.errors)
        self._stored |= set(seat.store.chunks)
        self.payload_bytes += sum(len(chunk) for chunk in seat.store.chunks.values())

    def seen(self) -> Counter[str]:
        """See Surface."""
        return self._codes.copy()

    def state(self) -> dict[str, Any]:
        """See Surface."""
        return {"chunks": sorted(self._stored), "requests to the forbidden server": list(self._heard)}

    def state_after_restart(self) -> dict[str, Any]:
        """See Surface. Nothing is kept but what was stored."""
        return {"chunks": sorted(self._stored)}

    def works(self) -> str:
        """See Surface."""
        SourcePolicy.parse(["https"]).check("https://storage.example/models/")
        return ""

    def close(self) -> None:
        """See Surface."""

    @contextlib.contextmanager
    def _forbidden(self) -> Any:
        """A server that no source may name; what it is asked is noted."""

        def listen() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with listener.accept()[0] as sock:
                        self._heard.append(sock.recv(4096))
                        sock.sendall(partial(BODY, 0, len(BODY)))

        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=listen)
            thread.start()
            try:
                yield int(listener.getsockname()[1])
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                thread.join()
