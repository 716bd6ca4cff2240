"""The daemon's side of ``gossipd want``: an order is judged, kept over a restart, put into force.

What lives here: judging an order by the newest version that is known, keeping it, putting it into force. What does not:
what a want means (``parts.part``), how orders and configuration unite (``parts.want_orders``), and fetching.

An order that has a holder ends with the process that gave it, also when that ended while no daemon ran.

When an order has been answered, this host's record no longer says that what it wants is complete, unless it is; so a
job may order and wait.

An order that means nothing in the newest version is refused and changes nothing. One for a name that nobody has heard
of is kept: its first version is judged when it comes, and fails there with the reason ``want`` if need be.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field

import trio

from gossipd.api.calling_process import NO_PROCESS, CallingProcess
from gossipd.api.ports import WantInForce
from gossipd.audit.log import AuditLog
from gossipd.core.units import show_bytes
from gossipd.daemon.deployment_driver import DeploymentDriver
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.process_end import process_name, wait_process_end
from gossipd.daemon.progress_publisher import ProgressPublisher
from gossipd.daemon.state_dir import StateDirectory, StateWriteError
from gossipd.deployment.events import WantsChanged
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest
from gossipd.manifest.names import check_model_name
from gossipd.parts.part import bytes_of, choose_part
from gossipd.parts.want import EVERYTHING, Want, WantError
from gossipd.parts.want_orders import changed_orders, orders_to_bytes, parse_order, processes_of, without_process
from gossipd.runtime.worker_threads import run_blocking

_SHOWN_MAX = 5  # terms in a sentence


@dataclass(slots=True, kw_only=True, eq=False)
class WantOrders:
    """One per daemon; on the trio loop."""

    live: LiveSettings
    state: StateDirectory
    driver: DeploymentDriver
    progress: ProgressPublisher
    audit: AuditLog
    _one_at_a_time: trio.Lock = field(default_factory=trio.Lock, init=False)
    _ordered: trio.Event = field(default_factory=trio.Event, init=False)
    _awaited: dict[str, trio.CancelScope] = field(default_factory=dict, init=False)
    _descriptors: dict[str, int] = field(default_factory=dict, init=False)
    """Of processes that are out of sight, until their end is awaited."""

    async def run(self) -> None:
        """Take away the orders of processes that have ended. Runs until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._ordered = trio.Event()
                processes = processes_of(self.live.ordered_wants)
                for process in self._awaited.keys() - processes:  # its orders were taken away
                    self._awaited.pop(process).cancel()
                for process in self._descriptors.keys() - processes:
                    os.close(self._descriptors.pop(process))
                for process in processes - self._awaited.keys():
                    scope = self._awaited[process] = trio.CancelScope()
                    nursery.start_soon(self._end_with, process, scope)
                await self._ordered.wait()

    async def _end_with(self, process: str, scope: trio.CancelScope) -> None:
        with scope:
            await wait_process_end(process, self._descriptors.pop(process, None))
        if scope.cancelled_caught:
            return
        async with self._one_at_a_time:
            before = self.live.ordered_wants
            after = without_process(before, process)
            self._awaited.pop(process, None)
            if after == before:
                return
            with suppress(StateWriteError):  # the next start finds again that it has ended
                await run_blocking(self.state.keep_wants, orders_to_bytes(after))
            self.live.ordered_wants, wants = after, self.live.wants(after)
            for name in sorted({key.partition(" ")[0] for key in before.keys() - after.keys()}):
                self.audit.record("want ended", subject=name, want=wants.get(name, EVERYTHING).text or "everything")
            self._tell("")

    def _await_end(self, name: str, process: CallingProcess) -> None:
        if name in processes_of(self.live.ordered_wants) and not process.pid:
            descriptor = process.open_descriptor()
            if descriptor is not None:
                self._descriptors[name] = descriptor
        self._ordered.set()

    def _tell(self, freed: str) -> None:
        self.driver.post(WantsChanged(self.live.wants(), freed))
        self.progress.tell_due(trio.current_time())

    async def order(
        self, name: str, terms: list[str], *, clear: bool, free: bool, holder: str = "",
        process: CallingProcess = NO_PROCESS,
    ) -> WantInForce:  # fmt: skip
        """See AdminPort."""
        try:
            check_model_name(name)
        except ManifestError as error:
            raise WantError(str(error.args[0])) from None
        async with self._one_at_a_time:
            before = self.live.ordered_wants
            added = parse_order(terms) if terms else None
            by = process_name(process.pid) if holder else ""
            after = changed_orders(before, name, added, clear=clear, holder=holder, process=by)
            want = self.live.wants(after).get(name, EVERYTHING)
            found = self.driver.lifecycle.find(name)
            newest = found[0].manifest if found else None
            bytes_wanted = await _bytes_wanted(newest, want, is_judged=bool(terms))
            is_changed = after != before
            if is_changed:
                await run_blocking(self.state.keep_wants, orders_to_bytes(after))
                self.live.ordered_wants = after
                self.audit.record("want ordered", subject=name, want=want.text or "everything")
                self._await_end(by, process)
            if is_changed or free:
                self._tell(name if free else "")
        return WantInForce(
            changed=is_changed, sentence=_sentence(name, want, newest, bytes_wanted, is_changed=is_changed, free=free),
            want=want.text, version=None if newest is None else newest.version, bytes_wanted=bytes_wanted,
            version_label="" if newest is None else newest.version_label,
        )  # fmt: skip


async def _bytes_wanted(newest: Manifest | None, want: Want, *, is_judged: bool) -> int | None:
    """Of the newest version; None where there is none, or its part cannot be told. Raises WantError, ManifestError."""
    if newest is None:
        return None
    try:
        part = await run_blocking(choose_part, newest, want)
    except (WantError, ManifestError):
        if is_judged:
            raise
        return None
    return await run_blocking(bytes_of, newest, part.wanted)


def _sentence(
    name: str, want: Want, newest: Manifest | None, bytes_wanted: int | None, *, is_changed: bool, free: bool
) -> str:
    terms = want.text.split("\n") if want.text else ["everything"]
    more = f" and {len(terms) - _SHOWN_MAX} more" if len(terms) > _SHOWN_MAX else ""
    words = f"this host wants {', '.join(terms[:_SHOWN_MAX])}{more} of {name}{'' if is_changed else ', as before'}"
    if newest is None:
        words += "; no version of it is known here yet"
    elif bytes_wanted is not None:
        words += (
            f": {show_bytes(bytes_wanted)} of the {show_bytes(newest.bytes_total)} of version {newest.version_label}"
        )
    return words + ("; what is wanted no longer is deleted, but no bytes that a process may still read" if free else "")
