"""Runs membership's brain on this host: its socket, its turns, and what the daemon publishes through it.

What lives here: making the brain, its socket, publishing, the seed claim. What does not: the verdicts
(``membership``), the table of members (``member_directory``), and what its events mean (``member_events``).

While a model moves, the turn loop takes membership's turns too, which saves most of its wake-ups. A probe is then
answered up to a rest later, 50 ms of the 200 of ``probe_timeout_s``; the prober hears before it judges.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from random import Random

import trio

from gossipd.core.dscp import parse_dscp
from gossipd.core.ids import DeploymentId
from gossipd.daemon import settings_mapping
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.live_settings import LiveSettings
from gossipd.deployment.statement import Statement
from gossipd.runtime.logs import get_logger
from gossipd.runtime.traffic_marks import mark
from gossipd.runtime.turn_loop import Phase, TurnLoop
from membership import events as membership_events
from membership.credentials import Credentials
from membership.errors import PayloadRefusedError, TooManyStatementsError
from membership.host_rules import HostRules
from membership.member import NodeId, Record
from membership.runtime import SwimRuntime, open_udp_socket
from membership.swim import Swim
from membership.tombstones import Tombstone

log = get_logger("membership")


class MembershipHost:
    """On the trio loop. ``record``: what this host says of itself, unsigned. ``roster``, ``tombstones``: members of an
    earlier run, and those that are none any more. ``rules`` judge what is heard."""

    def __init__(
        self, live: LiveSettings, *, record: Record, roster: list[Record], tombstones: list[Tombstone], alarms: Alarms,
        rules: HostRules,
    ) -> None:  # fmt: skip
        config, keys = live.config, live.keys
        self._live = live
        self._alarms = alarms
        self._runtime: SwimRuntime | None = None
        self._seed_term = self._free_step = 0
        self._refused: dict[membership_events.PayloadKind, str] = {}
        """Why the last word of a kind was not told."""
        settings, credentials = settings_mapping.swim_settings(config), Credentials(keys.node.sign, keys.cluster)
        rng, now = Random(secrets.randbits(64)), trio.current_time()
        self.swim = Swim(settings, record, credentials, rng=rng, now=now, roster=roster, rules=rules)
        self.swim.recall(tombstones, now)

    async def start(
        self, nursery: trio.Nursery, on_event: Callable[[membership_events.Event], None], *, turn_loop: TurnLoop
    ) -> None:
        """Receive and send until the nursery ends. Raises OSError when the port is taken."""
        net = self._live.config.net
        udp = open_udp_socket(net.bind, net.port)
        mark(udp, parse_dscp(net.dscp_control))
        nursery.start_soon(_close_at_the_end, udp.close)
        self._runtime = await nursery.start(SwimRuntime(self.swim, udp, on_event=on_event, attendant=turn_loop).run)
        nursery.start_soon(_take_part, turn_loop, self._runtime)

    def wake(self) -> None:
        """After any direct call of the brain."""
        if self._runtime is not None:
            self._runtime.wake()

    def leave(self) -> None:
        """Tell the cluster that this host leaves."""
        self.swim.leave(trio.current_time())
        self.wake()

    def publish_statement(self, statement: Statement) -> None:
        """Have gossip carry it to all hosts, late joiners too."""
        self._publish(membership_events.PayloadKind.STATEMENT, statement.deployment, statement.rank, statement.encode())

    def forget_statement(self, deployment: DeploymentId) -> None:
        """Have gossip tell no more of it."""
        self.swim.forget_statement(deployment, trio.current_time())
        self.wake()

    def publish_progress(self, key: bytes, version: int, record: bytes) -> None:
        """Have gossip carry it to the hosts that are up; the next one supersedes it."""
        self._publish(membership_events.PayloadKind.PROGRESS, key, version, record)

    def tell_head(self, issued_ms: int, head: bytes, count: int) -> None:
        """Tell that many hosts the signed head of our audit chain."""
        self.swim.tell_some(self.swim.self_record().node, issued_ms, head, count)
        self.wake()

    def _publish(self, kind: membership_events.PayloadKind, key: bytes, version: int, payload: bytes) -> None:
        try:
            self.swim.publish(kind, key, version, payload, trio.current_time())
        except TooManyStatementsError as error:
            self._alarms.ring_as(error.code, str(error))
        except PayloadRefusedError as error:  # such as what a host with a wrong clock says
            if self._refused.get(kind) != str(error):
                log.warning("told nobody", kind=kind.name.lower(), reason=str(error))
            self._refused[kind] = str(error)
        else:
            self._refused.pop(kind, None)
            if kind is membership_events.PayloadKind.STATEMENT:
                self._alarms.cured(TooManyStatementsError.code)
        self.wake()

    def claim_seed(self, term: int) -> None:
        """Put the term on our record; zero gives the claim up."""
        self._seed_term = term
        self.publish_capabilities()

    def tell_free_space(self, step: int) -> None:
        """Put the room for models on our record, when it is another (``swarm.capabilities``)."""
        if step != self._free_step:
            self._free_step = step
            self.publish_capabilities()

    def judge_again(self) -> None:
        """Who may sign has changed."""
        self.swim.judge_again(trio.current_time())
        self.wake()

    def keys_changed(self) -> None:
        """Another key ring of this cluster; nothing is sent for it."""
        self.swim.set_keys(self._live.keys.cluster)

    def publish_capabilities(self) -> None:
        """Put on our record what this host can do; a reload may have changed it."""
        capabilities = settings_mapping.capabilities(
            self._live.config, self._live.keys, seed_term=self._seed_term, free_step=self._free_step
        )
        self.swim.update_payload(capabilities.to_bytes(), trio.current_time())
        self.wake()

    def slowness(self) -> int:
        """By how much this host is slower than it should be: 1 when it is well."""
        return self.swim.slowness(trio.current_time())

    def ask(self, node: NodeId) -> None:
        """Ask a member that is about to be dialed, and has never answered."""
        self.swim.ask(node, trio.current_time())
        self.wake()

    def answered(self, node: NodeId) -> None:
        """The member answered the fall-back probe."""
        self.swim.control_probe_answered(node, trio.current_time())
        self.wake()


async def _take_part(turn_loop: TurnLoop, runtime: SwimRuntime) -> None:
    def turn(now: float) -> bool:
        runtime.catch_up(now)
        return False  # membership speaks all day and must not keep the loop awake

    with turn_loop.joined(Phase.HEAR, turn):
        await trio.sleep_forever()


async def _close_at_the_end(close: Callable[[], None]) -> None:
    try:
        await trio.sleep_forever()
    finally:
        close()
