"""One daemon put together: everything is opened in order, lives nested, and ends in reverse.

What lives here: which part gets which, and the order of opening and closing. What does not: what any part does.

Opening: state and store (which lock), the record and membership's brain, the hands, the planner. Living, outer to
inner: the audit log; control plane, bulk server and membership; the brain's loop and the teller; inbox and status
socket. Closing, within five seconds: goodbye to the cluster, fetches and reads ended, uploads cut, the store
committed, state kept. Everything that is verified is kept; what was in flight is fetched again.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from random import Random

import structlog
import trio

from gossipd.api.counters import LoopLag
from gossipd.api.local_socket import bind_loopback, bind_unix
from gossipd.api.request_guard import RequestGuard
from gossipd.api.server import health_app, status_app
from gossipd.audit.log import AuditLog
from gossipd.config.keys import Keys
from gossipd.config.sections import Config
from gossipd.control.control_plane import ControlPlane
from gossipd.control.listener import BindError
from gossipd.control.self_check import self_check as check_control
from gossipd.control.settings import ControlSettings
from gossipd.control.trigger_server import TriggerServer
from gossipd.core.errors import NotFoundError
from gossipd.core.events import (
    ChunkLost,
    ChunkStored,
    Command,
    DeploymentClosed,
    DeploymentOpened,
    Event,
    PeerLost,
    ProbeSource,
)
from gossipd.core.ids import DeploymentId
from gossipd.daemon import settings_mapping
from gossipd.daemon.admin_operations import AdminOperations
from gossipd.daemon.contacts import keep_joining
from gossipd.daemon.control_delegate import ControlDelegate
from gossipd.daemon.data_plane import DataPlane
from gossipd.daemon.deployment_driver import DeploymentDriver
from gossipd.daemon.deployment_executor import DeploymentExecutor, ManifestClient
from gossipd.daemon.driver import PlannerDriver
from gossipd.daemon.executor import CommandExecutor
from gossipd.daemon.member_directory import MemberCallbacks, MemberDirectory
from gossipd.daemon.membership_host import MembershipHost
from gossipd.daemon.progress_publisher import ProgressPublisher
from gossipd.daemon.roster import ClusterRoster
from gossipd.daemon.state_dir import StateDirectory
from gossipd.daemon.state_saver import StateSaver
from gossipd.daemon.status_view import Alarms, DaemonStatus, StatusSources
from gossipd.daemon.triggers import Triggers
from gossipd.deployment.brain import DeploymentBrain
from gossipd.deployment.commands import OpenSwarm
from gossipd.deployment.context import HostIdentity
from gossipd.deployment.events import (
    DaemonStarted,
    DiskConditionChanged,
    ProgressHeard,
    RosterChanged,
    SourceTroubled,
    StatementHeard,
    VersionEvicted,
)
from gossipd.deployment.statement import Statement
from gossipd.identity.keys import KEY_BYTES, SecretKey
from gossipd.inbox.inbox import Inbox
from gossipd.runtime.logs import set_level
from gossipd.runtime.ports import StoreWriteError
from gossipd.runtime.turn_loop import TurnLoop
from gossipd.runtime.worker_threads import calls_without_a_thread, run_blocking
from gossipd.store.notices import ModelEvicted, StoreConditionChanged, StoreEvent
from gossipd.swarm.planner import Planner
from gossipd.swarm.settings import PlannerSettings
from gossipd.swarm.standing_links import standing_links
from gossipd.transfer.self_check import self_check as check_bulk
from gossipd.wire import control
from membership.events import PayloadHeard
from membership.member import NODE_ID_BYTES, NodeId

PING_S = 0.8  # the fall-back probe's answer counts only while the suspicion is young
THREADS_LOOK_S = 1.0
NO_THREADS = "the system refuses new threads to this daemon: raise the limit (ulimit -u, TasksMax, pids.max)"
STANDING_LINKS_S, DIALS_AT_ONCE = 0.5, 10  # 2 % of a core while a cluster of 40 gets acquainted, which takes 2 s
log = structlog.get_logger("node")


class App:
    """A running daemon. Made inside ``trio.run``; ``main`` lives until it is cancelled."""

    def __init__(self, config: Config, keys: Keys, nursery: trio.Nursery) -> None:
        """Open everything that locks or reads, in order. Raises GossipdError, OSError; then nothing is left open."""
        self.config, self.keys = config, keys
        self._nursery = nursery
        self._token = trio.lowlevel.current_trio_token()
        self._bugs: list[BaseException] = []
        self._request_guards: list[RequestGuard] = []
        self._bug_found = trio.Event()
        now, wall_s = trio.current_time(), time.time()
        home = config.file.parent
        self.audit, self.lag = AuditLog(home / "audit.jsonl"), LoopLag()
        self.alarms = Alarms(lambda code, sentence: self.audit.record("alarm", code=code, reason=sentence))
        self.state = StateDirectory(home / "state")
        self.register = self.state.register()
        roster = self.state.roster()
        record = settings_mapping.own_record(config, keys.node.public, self.state.next_boot(wall_s))
        self.own: NodeId = record.node
        self.membership_host = MembershipHost(config, keys, record=record, roster=roster, alarm=self.alarms.ring)
        self.cluster = MemberDirectory(self.own)
        self.cluster.begin(self.membership_host.swim.self_record(), roster)
        self.planner = Planner(
            node=self.own, rack=config.node.rack, zone=config.node.zone, name=config.node.name,
            settings=PlannerSettings(), rng=Random(secrets.randbits(64)), can_read_sources=config.sources.enabled,
        )  # fmt: skip
        self.turn_loop = TurnLoop(late=self.lag.observe)
        self.driver = PlannerDriver(self.planner, turn_loop=self.turn_loop, perform=self._perform, note=self._note)
        self.data_plane = DataPlane(
            config, keys, state=self.state, cluster=self.cluster, on_store=self._store_reported, post=self.driver.post,
            token_of=self._token_of, recheck=self._recheck, before_evict=self._before_evict,
            is_coming=self._is_coming,
        )  # fmt: skip
        self._build_control()
        self._build_deployments(now, wall_s)
        self._build_api()

    def _build_control(self) -> None:
        self.delegate = ControlDelegate(
            cluster=self.cluster,
            tokens=self.data_plane.tokens,
            received_tokens=self.data_plane.received_tokens,
            clients=lambda: self.keys.clients,
            post=self.driver.post,
            audit=self.audit.record,
        )
        self.plane = ControlPlane(
            secret=self.keys.node,
            host=self.delegate,
            settings=ControlSettings(),
            rng=Random(secrets.randbits(64)),
            turn_loop=self.turn_loop,
        )

    def _build_deployments(self, now: float, wall_s: float) -> None:
        config, data_plane = self.config, self.data_plane
        table = self.state.progress(now=now, wall_s=wall_s)
        brain = DeploymentBrain(
            HostIdentity(self.own, config.node.name, config.node.rack, self.keys.node),
            statements=self.register,
            roster=ClusterRoster(self.own, self.cluster, lambda: self.keys.clients),
            progress=table,
            rng=Random(secrets.randbits(64)),
            complete_before=frozenset(model.deployment for model in data_plane.store.models() if model.is_published),
        )
        self.lifecycle = brain.lifecycle
        deployment_executor = DeploymentExecutor(
            state=self.state,
            store=data_plane.store,
            client=ManifestClient(data_plane.client, self.cluster),
            swarm=self,
            audit=self.audit,
        )
        self.deployment_driver = DeploymentDriver(brain, deployment_executor, self._nursery)
        self.triggers = Triggers(statements=self.register, lifecycle=self.lifecycle, driver=self.deployment_driver)
        self.delegate.trigger_server = TriggerServer(self.triggers, self._nursery)
        self.progress_publisher = ProgressPublisher(
            own=self.own,
            table=table,
            lifecycle=self.lifecycle,
            store=data_plane.store,
            hosts=lambda: len(self.cluster.records),
            publish=self.membership_host.publish_progress,
            uploaded=data_plane.chunk_access.take_uploaded,
        )
        self.state_saver = StateSaver(
            state=self.state,
            register=self.register,
            swim=self.membership_host.swim,
            progress_publisher=self.progress_publisher,
            alarm=self.alarms.ring,
            cured=self.alarms.cured,
        )
        self.executor = CommandExecutor(
            cluster=self.cluster,
            plane=self.plane,
            client=data_plane.client,
            server=data_plane.server,
            reader=data_plane.reader,
            store=data_plane.store,
            manifest_of=self.lifecycle.manifest_of,
            post=self.driver.post,
            claim_seed=self._claim_seed,
            report=self.deployment_driver.post,
            read_threads=config.sources.connections,
            audit=self.audit.record,
            bug=self.bug,
            trouble=lambda deployment, error: self._token.run_sync_soon(
                self.deployment_driver.post, SourceTroubled(deployment, error)
            ),
        )

    def _build_api(self) -> None:
        config, data_plane = self.config, self.data_plane
        self.cluster.callbacks = MemberCallbacks(
            post=self.driver.post, member_changed=self.plane.member_changed, member_gone=self._member_gone,
            roster_changed=self._roster_changed, heard=self._heard, probe_wanted=self._probe_wanted,
            alarm=self.alarms.ring, cured=self.alarms.cured,
        )  # fmt: skip
        self.inbox = Inbox(config.store.inbox, self.deployment_driver.offer)
        self.view = DaemonStatus(
            StatusSources(
                config=config,
                own=self.own,
                swim=self.membership_host.swim,
                planner=self.planner,
                lifecycle=self.lifecycle,
                progress_publisher=self.progress_publisher,
                store=data_plane.store,
                server=data_plane.server,
                client=data_plane.client,
                reader=data_plane.reader,
                pool=data_plane.pool,
                inbox=self.inbox,
                audit=self.audit,
                lag=self.lag,
                alarms=self.alarms,
                control_figures=self.plane.statistics,
                sent_bytes=data_plane.chunk_access.sent_bytes,
                status_refused=lambda: sum(request_guard.refused for request_guard in self._request_guards),
            )
        )
        self.orders = AdminOperations(
            swim=self.membership_host.swim,
            wake=self.membership_host.wake,
            lifecycle=self.lifecycle,
            driver=self.deployment_driver,
            store=data_plane.store,
            table=self.progress_publisher.table,
            audit=self.audit,
        )

    # ---- life --------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def serving(self, *, ending: Callable[[], None] = lambda: None) -> AsyncIterator[None]:
        """Everything listens, strangers were seen to be refused, and the cluster is being looked for.

        Args:
            ending: called when it ends, for whatever reason, before what is verified is kept.
        """
        config = self.config
        async with trio.open_nursery() as outer:
            try:
                outer.start_soon(self.audit.run)
                await outer.start(self.plane.serve, config.net.bind, config.net.port)
                with _listening("TCP", *config.bulk_address, "net.bulk_port"):
                    await run_blocking(self.data_plane.server.start, *config.bulk_address)
                with _listening("UDP", config.net.bind, config.net.port, "net.port"):
                    await self.membership_host.start(outer, self.cluster.hear, turn_loop=self.turn_loop)
                await self._check_listeners()
                async with trio.open_nursery() as inner:
                    await self._begin(inner)
                    yield
                    self._say_goodbye()
                    inner.cancel_scope.cancel()
            finally:
                ending()
                await self._close_data_plane()
            outer.cancel_scope.cancel()

    async def _begin(self, nursery: trio.Nursery) -> None:
        for task in (
            self.driver.run,
            self.progress_publisher.run,
            self.lag.run,
            self.state_saver.run,
            self.deployment_driver.run,
            self._stop_for_bugs,
            self._watch_threads,
            self._keep_standing_links,
        ):
            nursery.start_soon(task)
        nursery.start_soon(
            keep_joining, self.membership_host.swim, lambda: self.config.net.join, self.membership_host.wake
        )
        await self._open_local_sockets(nursery)
        await run_blocking(self._finish_removals)
        self.deployment_driver.post(DaemonStarted())

    def _finish_removals(self) -> None:
        """What was marked as removed when the last run ended and is still there, and manifests nobody speaks of.

        A disk that takes no writes can be served from: it is done at the next start, then.
        """
        try:
            for deployment in self.state.envelopes():
                if self.register.statement(deployment) is None:
                    self.state.forget_envelope(deployment)
            for model in self.data_plane.store.models():
                if self.register.is_removed(model.deployment) and model.name:
                    self.data_plane.store.remove(model.name, model.version)
        except (OSError, StoreWriteError, NotFoundError) as error:
            log.warning("removed model not deleted yet", reason=str(error))

    async def _check_listeners(self) -> None:
        """Strangers are refused, or we do not run."""
        config = self.config
        host, port = config.bulk_address
        reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        async with trio.open_nursery() as nursery:
            stranger = SecretKey(secrets.token_bytes(KEY_BYTES))
            nursery.start_soon(
                partial(
                    check_control, self.plane, config.net.bind, config.net.port, own=self.keys.node, stranger=stranger
                )
            )
            encryption = settings_mapping.bulk_settings(config).encryption
            keys = self.keys.cluster.keys
            nursery.start_soon(run_blocking, check_bulk, (reachable, port), encryption, keys)

    async def _open_local_sockets(self, nursery: trio.Nursery) -> None:
        await nursery.start(self.inbox.run)
        self._request_guards.append(RequestGuard(status_app(self.view, self.orders)))
        nursery.start_soon(self._request_guards[-1].serve, bind_unix(self.config.status.socket))
        if self.config.status.metrics_port:
            listener = bind_loopback("127.0.0.1", self.config.status.metrics_port)
            self._request_guards.append(RequestGuard(health_app(self.view)))
            nursery.start_soon(self._request_guards[-1].serve, listener)

    def _say_goodbye(self) -> None:
        for record in self.lifecycle:
            self.progress_publisher.tell(record)
        self.membership_host.leave()

    async def _close_data_plane(self) -> None:
        with trio.CancelScope(shield=True):
            await run_blocking(self.data_plane.stop_moving)
            await run_blocking(self.executor.close)
            await run_blocking(self.data_plane.close)
            await run_blocking(self.state_saver.keep_all)

    def bug(self, error: BaseException) -> None:
        """From any thread: something that cannot happen did. The node stops, with everything verified kept."""
        self._bugs.append(error)
        self._token.run_sync_soon(self._bug_found.set)

    async def _stop_for_bugs(self) -> None:
        await self._bug_found.wait()
        raise AssertionError("a worker thread met what it should not have") from self._bugs[0]

    async def _watch_threads(self) -> None:
        """Never returns: work that waits for a thread is an operator's business, and goes on by itself."""
        while True:
            await trio.sleep(THREADS_LOOK_S)
            if calls_without_a_thread():
                self.alarms.ring("E_THREADS", NO_THREADS)
            else:
                self.alarms.cured("E_THREADS")

    async def _keep_standing_links(self) -> None:
        """Never returns: keep links to those that the next deployment will need, whenever it comes."""
        settings = self.planner.settings
        while True:
            rack_of = {node: self.cluster.records[node].rack for node in self.cluster.live()}
            nodes = standing_links(self.config.node.rack, rack_of, settings)
            self.plane.keep_links(nodes, dials_max=DIALS_AT_ONCE)
            await trio.sleep(STANDING_LINKS_S)

    # ---- what parts tell each other ----------------------------------------------------------------

    def trusted(self) -> frozenset[bytes]:
        """Publishers whose manifests are accepted."""
        return frozenset(key.ed25519 for key in self.keys.publishers)

    def _recheck(self, deployment: DeploymentId, chunk: int) -> None:
        self.executor.recheck(deployment, chunk)

    def _perform(self, command: Command) -> None:
        self.executor.perform(command)

    def _note(self, event: Event) -> None:
        if isinstance(event, ChunkStored | ChunkLost):
            self.deployment_driver.post(event)

    def _store_reported(self, event: StoreEvent) -> None:
        """From the store's threads."""
        if isinstance(event, ChunkStored | ChunkLost):
            self.driver.post(event)
        elif isinstance(event, StoreConditionChanged | ModelEvicted):
            self._token.run_sync_soon(self._store_changed, event)
        # SpaceFreed: a deployment that waits for space looks again by itself

    def _before_evict(self, event: ModelEvicted) -> None:
        """From the thread in which a deployment publishes."""
        trio.from_thread.run(self.deployment_driver.evict, event.deployment)

    def _store_changed(self, event: StoreConditionChanged | ModelEvicted) -> None:
        if isinstance(event, ModelEvicted):
            self.deployment_driver.post(VersionEvicted(event.deployment, event.name, event.version))
        else:
            condition = event.condition
            self.deployment_driver.post(DiskConditionChanged(condition.code))
            log.warning("store", condition=condition.health.value, reason=condition.sentence)
            self.audit.record(
                "store condition", condition=condition.health.value, code=condition.code, reason=condition.sentence,
                need_bytes=condition.need_bytes, free_bytes=condition.free_bytes,
            )  # fmt: skip

    def _is_coming(self, deployment: DeploymentId) -> bool:
        return self.lifecycle.is_coming(deployment)  # made after the hands that ask

    def open_swarm(self, command: OpenSwarm) -> None:
        """See SwarmPort."""
        manifest = command.manifest
        opened = DeploymentOpened(manifest.id, manifest.shape(), command.held, manifest.priority, manifest.targets)
        self.driver.post(opened)
        self.plane.hear(opened)

    def close_swarm(self, deployment: DeploymentId) -> None:
        """See SwarmPort."""
        closed = DeploymentClosed(deployment)
        self.driver.post(closed)
        self.plane.hear(closed)
        self.data_plane.reader.forget(deployment)

    def probe_source(self, command: ProbeSource) -> None:
        """See SwarmPort."""
        self.executor.perform(command)

    def tell_statement(self, statement: Statement) -> None:
        """See SwarmPort."""
        self.membership_host.publish_statement(statement)

    def _roster_changed(self) -> None:
        self.deployment_driver.post(RosterChanged())

    def _member_gone(self, node: NodeId) -> None:
        self.plane.hear(PeerLost(node))

    def _heard(self, event: PayloadHeard) -> None:
        self.membership_host.hear(event, statement=self._statement_heard, progress=self._progress_heard)

    def _statement_heard(self, wire: bytes, forwarder: NodeId, key: bytes) -> None:
        self.deployment_driver.post(StatementHeard(wire, key, forwarder))

    def _progress_heard(self, key: bytes, version: int, record: bytes) -> None:
        node, short_key = NodeId(key[:NODE_ID_BYTES]), key[NODE_ID_BYTES:]
        if node != self.own:
            self.progress_publisher.heard(node, short_key, version, record)
            self.deployment_driver.post(ProgressHeard(node, short_key))

    def _probe_wanted(self, node: NodeId) -> None:
        self._nursery.start_soon(self.membership_host.ping, node, self._ask)

    async def _ask(self, node: NodeId) -> None:
        await self.plane.request(node, control.Ping(), PING_S)

    def _claim_seed(self, term: int) -> None:
        self.membership_host.claim_seed(term)
        self.audit.record("seed claimed" if term else "seed given up", rack=self.config.node.rack, term=term)

    def _token_of(self, node: NodeId) -> bytes:
        """From worker threads: a token that opens one plain bulk connection."""
        reply = self.plane.request_from_thread(node, control.TokenWanted(), PING_S)
        assert isinstance(reply, control.Token)
        return reply.token

    def change(self, config: Config, keys: Keys) -> None:
        """SIGHUP: limits, sources, trust, clients and the cluster's key ring may change while running."""
        if keys.cluster != self.keys.cluster:
            self.membership_host.set_keys(keys)
            self.data_plane.set_keys(keys)
            self.audit.record("cluster keys changed", accepted=len(keys.cluster.keys))
        self.config, self.keys = config, keys
        self.view.change(config)
        self.data_plane.change_limits(config)
        self.plane.clients_changed()
        self._roster_changed()
        self.planner.set_own(can_read_sources=config.sources.enabled)
        self.driver.look_again()
        self.membership_host.change(config)
        set_level(config.log.level)


@contextlib.contextmanager
def _listening(kind: str, host: str, port: int, setting: str) -> Iterator[None]:
    """Raises BindError, which names the address, for an OSError."""
    try:
        yield
    except OSError as error:
        sentence = f"cannot listen on {host} port {port} ({kind}, {setting}): {error.strerror or error}"
        raise BindError(sentence) from error
