"""Membership's brain on this host, and what is said and heard through it.

What lives here: making the brain, its socket, publishing, the seed claim, the fall-back probe. What does not: the
verdicts (``membership``), the table of members (``member_directory``), what a statement or a record of progress means.

While a model moves the beat takes membership's turns too: of the 80 wake-ups a second of a daemon in the lab 48 were
for one datagram or one deadline each (41.7 instead of 42.8 CPU seconds for sixteen daemons, means of five pairs of runs
in turn that were 40.7 to 45.8). A probe is answered up to a rest later, 50 ms of the 200 of ``probe_timeout_s``; the
prober's own rest does not count, as it hears before it judges: of 1,200 probes none failed with it or without.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

import structlog
import trio

from gossipd.config.keys import Keys
from gossipd.config.sections import Config
from gossipd.core.errors import GossipdError
from gossipd.daemon import settings_mapping
from gossipd.deployment.progress import ProgressFormatError
from gossipd.deployment.statement import Statement
from gossipd.runtime.turn_loop import Phase, TurnLoop
from membership import events as membership_events
from membership.credentials import Credentials
from membership.errors import PayloadRefusedError
from membership.member import NodeId, Record
from membership.runtime import SwimRuntime, open_udp_socket, serve
from membership.swim import Swim

PINGS_MAX = 16  # fall-back probes at once; a suspicion storm must not become a storm of dials
log = structlog.get_logger("gossip")


class MembershipHost:
    """On the trio loop.

    Args:
        record: what this host says of itself, unsigned. roster: members of an earlier run.
        alarm: told what an operator must know, as code and sentence.
    """

    def __init__(
        self, config: Config, keys: Keys, *, record: Record, roster: list[Record], alarm: Callable[[str, str], None]
    ) -> None:
        self._config = config
        self._alarm = alarm
        self._runtime: SwimRuntime | None = None
        self._pings = 0
        self._seed_term = 0
        self.swim = Swim(
            settings_mapping.swim_settings(config),
            record,
            Credentials(keys.node.sign, keys.cluster),
            rng=Random(secrets.randbits(64)),
            now=trio.current_time(),
            roster=roster,
        )

    async def start(
        self, nursery: trio.Nursery, on_event: Callable[[membership_events.Event], None], *, turn_loop: TurnLoop
    ) -> None:
        """Listen and speak until the nursery ends. Raises OSError when the port is taken."""
        net = self._config.net
        udp = open_udp_socket(net.bind, net.port)
        nursery.start_soon(_close_at_the_end, udp.close)
        speak = partial(serve, self.swim, udp, on_event=on_event, attendant=turn_loop)
        self._runtime = await nursery.start(speak)
        nursery.start_soon(_take_part, turn_loop, self._runtime)

    def wake(self) -> None:
        """After any direct call of the brain."""
        if self._runtime is not None:
            self._runtime.wake()

    def leave(self) -> None:
        """Say goodbye."""
        self.swim.leave(trio.current_time())
        self.wake()

    # ---- said ----------------------------------------------------------------------------------------

    def publish_statement(self, statement: Statement) -> None:
        """To everybody, late joiners too."""
        self._publish(membership_events.PayloadKind.STATEMENT, statement.deployment, statement.rank, statement.encode())

    def publish_progress(self, key: bytes, version: int, record: bytes) -> None:
        """To everybody who is there; the next one supersedes it."""
        self._publish(membership_events.PayloadKind.PROGRESS, key, version, record)

    def _publish(self, kind: membership_events.PayloadKind, key: bytes, version: int, payload: bytes) -> None:
        try:
            self.swim.publish(kind, key, version, payload, trio.current_time())
        except PayloadRefusedError as error:
            self._alarm("E_GOSSIP_FULL", str(error))
        self.wake()

    def claim_seed(self, term: int) -> None:
        """Put the term on our record; zero gives the claim up."""
        self._seed_term = term
        self._publish_capabilities()

    def change(self, config: Config) -> None:
        """Whether we may read storage has perhaps changed."""
        self._config = config
        self._publish_capabilities()

    def set_keys(self, keys: Keys) -> None:
        """Another key ring of this cluster; nothing is sent for it."""
        self.swim.set_keys(keys.cluster)

    def _publish_capabilities(self) -> None:
        capabilities = settings_mapping.capabilities(self._config, seed_term=self._seed_term)
        self.swim.update_payload(capabilities.to_bytes(), trio.current_time())
        self.wake()

    # ---- heard ---------------------------------------------------------------------------------------

    def hear(
        self,
        event: membership_events.PayloadHeard,
        *,
        statement: Callable[[bytes, NodeId, bytes], None],
        progress: Callable[[bytes, int, bytes], None],
    ) -> None:
        """Pass an application event to whom it concerns."""
        if event.kind is membership_events.PayloadKind.STATEMENT:
            statement(event.payload, event.forwarder, event.key)
            return
        try:
            progress(event.key, event.version, event.payload)
        except ProgressFormatError as error:
            log.debug("progress not understood", code=error.code)

    async def ping(self, node: NodeId, ask: Callable[[NodeId], Awaitable[object]]) -> None:
        """The fall-back probe: ``ask`` over the control channel, tell the brain if there was an answer."""
        if self._pings >= PINGS_MAX:
            return
        self._pings += 1
        try:
            await ask(node)
        except GossipdError:
            return  # silence says nothing more than membership knows
        finally:
            self._pings -= 1
        self.swim.control_probe_result(node, True, trio.current_time())
        self.wake()


async def _take_part(turn_loop: TurnLoop, runtime: SwimRuntime) -> None:
    def turn(_now: float) -> bool:
        runtime.catch_up()
        return False  # what is said all day must not keep the beat awake

    with turn_loop.joined(Phase.HEAR, turn):
        await trio.sleep_forever()


async def _close_at_the_end(close: Callable[[], None]) -> None:
    try:
        await trio.sleep_forever()
    finally:
        close()
