"""The checks at start: our own ports refuse strangers, or the daemon does not run.

What lives here: repeating a check that got no answer, and the refusals that the checks themselves bring about. What
does not: the visits (``control.self_check``, ``transfer.self_check``).

Only an answer is a verdict. On a host that is stopped or overloaded at that moment every deadline passes, which says
nothing about its ports, and a daemon that took it for a verdict would stay down: service files do not retry code 7.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import trio

from gossipd.control.control_plane import ControlPlane
from gossipd.control.self_check import VISITS, WILDCARDS
from gossipd.control.self_check import self_check as check_control
from gossipd.core.errors import CheckUnansweredError
from gossipd.daemon import settings_mapping
from gossipd.daemon.live_settings import LiveSettings
from gossipd.identity.keys import KEY_BYTES, SecretKey
from gossipd.runtime.logs import get_logger
from gossipd.runtime.worker_threads import run_blocking
from gossipd.transfer.self_check import self_check as check_bulk

CHECK_S = 60.0  # then the service file's restart tries again
PAUSE_S = 1.0
REFUSALS_S = 10.0  # the last refusal is told some milliseconds after the check, on a busy host seconds

Check: TypeAlias = Callable[[], Awaitable[None]]
log = get_logger("selfcheck")


class SelfChecks:
    """One per daemon, on the trio loop."""

    def __init__(self, live: LiveSettings) -> None:
        self._live = live
        self._stranger = SecretKey(secrets.token_bytes(KEY_BYTES))
        net = live.config.net
        self._control = (WILDCARDS.get(net.bind, net.bind), net.port)
        host, port = live.config.bulk_address
        self._bulk = (WILDCARDS.get(host, host), port)
        self._refusals_left, self._refusals_end_s = 0, 0.0

    async def run(self, plane: ControlPlane) -> None:
        """Check both ports. Raises SelfCheckError, SecurityCheckError: do not run; CheckUnansweredError: try later."""
        config, keys = self._live.config, self._live.keys
        encryption = settings_mapping.bulk_settings(config).encryption
        control = partial(check_control, plane, *self._control, own=keys.node, stranger=self._stranger)
        bulk = partial(run_blocking, check_bulk, self._bulk, encryption, keys.cluster.keys)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(repeated, partial(self._expecting, control))
            nursery.start_soon(repeated, bulk)

    async def _expecting(self, check: Check) -> None:
        self._refusals_left += VISITS
        try:
            await check()
        finally:
            self._refusals_end_s = trio.current_time() + REFUSALS_S

    def explain(self, address: str, key: bytes) -> bool:
        """Whether a refusal by the control port is one of the check's own, so that no stranger is reported for it.

        Args:
            address: of who was refused, with or without ``tcp://`` and a port; empty where nobody saw it, and then it
                may be the check's.
            key: the CURVE key that it showed, or empty.
        """
        if key:
            return key == self._stranger.public.curve25519
        host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]") if "://" in address else address
        is_own = host in ("", self._control[0])
        may = is_own and self._refusals_left > 0 and not 0 < self._refusals_end_s < trio.current_time()
        self._refusals_left -= may
        return may


async def repeated(check: Check) -> None:
    """Repeat the check until it has an answer. Raises what the check raises, CheckUnansweredError after a minute
    without one."""
    end_s = trio.current_time() + CHECK_S
    while True:
        try:
            await check()
            return
        except CheckUnansweredError as error:
            if trio.current_time() >= end_s:
                raise
            log.warning("self-check is repeated", reason=str(error.args[0]))
        await trio.sleep(PAUSE_S)
