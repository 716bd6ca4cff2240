"""One daemon put together: everything is opened in order, lives nested, and ends in reverse.

What lives here: which part gets which, and the order of opening and closing. What does not: what any part does.

Opening: state and store (which lock), membership's brain, the planner, the deployment brain, the sessions, the
adapters. Each part is given those that were made before it; what a part needs of later ones reaches it through a
driver, which keeps events until it runs. Living, outer to inner: the audit log; control plane, bulk server and
membership; the drivers and publishers; inbox and status socket. Closing, within five seconds: goodbye to the cluster,
fetches and reads ended, uploads cut, the store committed, state kept. Everything that is verified is kept; what was in
flight is fetched again.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import trio

from gossipd import __version__
from gossipd.api.counters import LoopLag
from gossipd.api.events import EventRing
from gossipd.api.local_server import LocalServers
from gossipd.api.local_socket import bind_metrics, bind_unix
from gossipd.audit.log import AuditLog
from gossipd.config.keys import Keys, key_changes
from gossipd.config.places import STATE
from gossipd.config.sections import Config
from gossipd.control.control_plane import ControlPlane
from gossipd.control.listener import BindError
from gossipd.control.trigger_server import TriggerServer
from gossipd.daemon import leftovers, settings_mapping
from gossipd.daemon.admin_operations import AdminOperations
from gossipd.daemon.alarms import Alarms, BugTrap, Reports, WordRefusals
from gossipd.daemon.audit_gossip import AuditGossip, HeadRules
from gossipd.daemon.budget_check import BudgetCheck
from gossipd.daemon.budget_orders import BudgetOrders
from gossipd.daemon.chunk_access import ChunkAccess
from gossipd.daemon.clock_watch import ClockWatch
from gossipd.daemon.cluster_roster import ClusterRoster
from gossipd.daemon.contacts import Contacts
from gossipd.daemon.control_delegate import BulkTokens, ControlDelegate
from gossipd.daemon.copies_watch import CopiesWatch
from gossipd.daemon.copy_checks import CopyChecks
from gossipd.daemon.credentials_watch import CredentialsWatch
from gossipd.daemon.data_plane import DataPlane, open_store
from gossipd.daemon.deployment_driver import DeploymentDriver
from gossipd.daemon.deployment_executor import DeploymentExecutor, ManifestClient
from gossipd.daemon.drift_watch import DriftWatch
from gossipd.daemon.event_feed import EventFeed
from gossipd.daemon.fine_sketches import FineSketches, SketchAnswers
from gossipd.daemon.free_space import FreeSpace
from gossipd.daemon.fresh_look import FreshLook
from gossipd.daemon.gossip_rules import GossipRules, SystemClocks
from gossipd.daemon.hooks import Hooks
from gossipd.daemon.hub_links import HubLinks
from gossipd.daemon.identity_alarms import IdentityAlarms
from gossipd.daemon.identity_watch import IdentityWatch
from gossipd.daemon.job_publishing import JobPublishing
from gossipd.daemon.limits_watch import LimitsWatch, ListeningPort
from gossipd.daemon.links_watch import LinksWatch
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.loneliness import LonelinessWatch
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.member_events import MemberEvents
from gossipd.daemon.membership_host import MembershipHost
from gossipd.daemon.orphans import Orphans
from gossipd.daemon.peer_wants import PeerWants
from gossipd.daemon.planner_driver import PlannerDriver
from gossipd.daemon.planner_executor import CommandExecutor
from gossipd.daemon.progress_publisher import ProgressPublisher
from gossipd.daemon.rack_copies import RackCopies
from gossipd.daemon.reloading import Reloader
from gossipd.daemon.self_checks import SelfChecks
from gossipd.daemon.sketch_sampler import SketchSampler
from gossipd.daemon.slow_start import told_if_slow
from gossipd.daemon.state_dir import StateDirectory
from gossipd.daemon.state_saver import StateSaver
from gossipd.daemon.status_view import DaemonStatus
from gossipd.daemon.step_watches import StepWatches
from gossipd.daemon.store_calls import StoreCalls
from gossipd.daemon.store_events import StoreEvents
from gossipd.daemon.store_watch import StoreWatch
from gossipd.daemon.swarm_actions import SwarmActions
from gossipd.daemon.triggers import Triggers
from gossipd.daemon.unheard_asks import ask_unheard
from gossipd.daemon.unreached_peers import FailedPulls, PullWatch
from gossipd.daemon.want_orders import WantOrders
from gossipd.daemon.watermarks import Watermarks
from gossipd.deployment.brain import DeploymentBrain
from gossipd.deployment.cluster_clock import ClusterClock
from gossipd.deployment.context import BrainContext, HostIdentity
from gossipd.deployment.events import DaemonStarted, RosterChanged, TrustReloaded, WantsChanged
from gossipd.deployment.progress_record import HostState
from gossipd.inbox.inbox import Inbox
from gossipd.runtime.file_access import group_number
from gossipd.runtime.logs import flush_lines, get_logger, set_level
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.slow_steps import SlowSteps
from gossipd.runtime.turn_loop import TurnLoop
from gossipd.runtime.worker_threads import run_blocking
from gossipd.swarm.planner import Planner
from gossipd.swarm.settings import PlannerSettings
from gossipd.swarm.standing_links import standing_links
from gossipd.transfer.settings import Encryption
from gossipd.transfer.tokens import IssuedTokens, ReceivedTokens
from membership import events as membership_events
from membership.member import NodeId

if TYPE_CHECKING:
    from gossipd.api.request_guard import RequestGuard

REFUSALS_LOOK_S = 1.0
OPENING_MAX_S, OPENING_LOOK_S = 10.0, 0.01
STANDING_LINKS_S, DIALS_AT_ONCE = 1.0, 20  # some percent of a core while a cluster of 40 gets acquainted
log = get_logger("node")


class App:
    """A running daemon, made inside ``trio.run``. Work that must end by itself runs in the outermost ``nursery``."""

    def __init__(self, config: Config, keys: Keys, nursery: trio.Nursery) -> None:
        """Open everything that locks or reads, in order. Raises GossipdError, OSError; then nothing is left open."""
        self._nursery = nursery
        now, wall_s = trio.current_time(), time.time()
        home = config.file.parent
        with told_if_slow(home / STATE):
            self._state, self._lag = StateDirectory(home / STATE), LoopLag()
        self.live = LiveSettings(config, keys, self._state.wants())
        boot = self._state.next_boot(wall_s)
        self._feed = EventFeed(EventRing(boot))
        audit = AuditLog(home / "audit.jsonl", listener=self._feed)
        self.reports = Reports(audit, Alarms(audit, self._feed.alarm_ended), BugTrap())
        self._statements, roster = self._state.register(), self._state.roster()
        self._progress = self._state.progress(now=now, wall_s=wall_s)
        record = settings_mapping.own_record(config, keys, boot)
        self._directory = MemberDirectory(record.node)
        self._witness = self._state.witness()
        self._histories, self._budgets = self._state.histories(), self._state.budgets()
        self._cluster_roster = ClusterRoster(self._directory, self.live)
        self._clocks, self._cluster_clock = SystemClocks(), ClusterClock()
        rules = GossipRules(
            self._statements, self._cluster_roster, self._progress, HeadRules(self._directory, self._witness),
            WordRefusals(audit, self._directory), clocks=self._clocks, cluster_clock=self._cluster_clock,
        )  # fmt: skip
        self._membership_host = MembershipHost(
            self.live, record=record, roster=roster, tombstones=self._state.tombstones(), alarms=self.reports.alarms,
            rules=rules,
        )  # fmt: skip
        self._directory.begin(self._membership_host.swim.self_record(), roster)
        self._planner = Planner(
            node=record.node, rack=config.node.rack, zone=config.node.zone, name=config.node.name,
            settings=PlannerSettings(pool_bytes=config.limits.pool_bytes), rng=_random(),
            can_read_sources=config.sources.enabled,
        )  # fmt: skip
        self._tell_own()
        self._slow_steps = SlowSteps()
        trio.lowlevel.add_instrument(self._slow_steps)
        self._turn_loop = TurnLoop(late=self._lag.observe, slow=self._slow_steps)
        self._driver = PlannerDriver(self._planner, self._turn_loop)
        self._store_events = StoreEvents(self._driver)
        with told_if_slow(config.store.models):
            self._store = open_store(config, self._store_events)
        audit.record("started", version=__version__, boot=record.boot)
        self._deployments = DeploymentDriver(self._make_brain())
        self._make_adapters()
        self._make_publishers()
        self._make_api()

    def _make_brain(self) -> DeploymentBrain:
        node, keys = self.live.config.node, self.live.keys
        context = BrainContext(
            identity=HostIdentity(self._directory.own, node.name, node.rack, keys.node), statements=self._statements,
            roster=self._cluster_roster, progress=self._progress, budgets=self._budgets,
            clock=self._cluster_clock,
            complete_before=frozenset(model.deployment for model in self._store.models() if model.is_published),
            cut_short=frozenset(self._state.publications()),
            wants=self.live.wants(),
        )  # fmt: skip
        return DeploymentBrain(context, _random())

    def _make_adapters(self) -> None:
        lifecycle, audit = self._deployments.lifecycle, self.reports.audit
        is_tls = settings_mapping.bulk_settings(self.live.config).encryption is Encryption.TLS
        tokens = BulkTokens(None if is_tls else IssuedTokens(), ReceivedTokens())
        self._budget_check = BudgetCheck(
            live=self.live, table=self._progress, lifecycle=lifecycle, own=self._directory.own,
            ordered=self._budgets, seeds=lambda: self._planner.seeds,
        )  # fmt: skip
        self._budget_orders = BudgetOrders(
            self._budget_check, self._cluster_roster, self._statements, self._state, self._cluster_clock, audit,
            tell=lambda: self._progress_publisher.tell_due(trio.current_time()),
        )  # fmt: skip
        triggers = Triggers(
            statements=self._statements, lifecycle=lifecycle, driver=self._deployments, budgets=self._budget_orders,
        )  # fmt: skip
        self._self_checks = SelfChecks(self.live)
        self._delegate = ControlDelegate(
            directory=self._directory, live=self.live, tokens=tokens, driver=self._driver,
            trigger_server=TriggerServer(triggers, self._nursery), audit=audit,
            membership_host=self._membership_host, self_checks=self._self_checks,
            sketches=SketchAnswers(self._planner, lifecycle, self._directory),
        )  # fmt: skip
        self._plane = ControlPlane(
            secret=self.live.keys.node, host=self._delegate, rng=_random(),
            settings=settings_mapping.control_settings(self.live.config), turn_loop=self._turn_loop,
        )  # fmt: skip
        self._data_plane = DataPlane(
            self.live, chunk_access=ChunkAccess(self._store, self._state, self._directory, lifecycle), tokens=tokens,
            directory=self._directory, driver=self._driver, plane=self._plane, reports=self.reports,
        )  # fmt: skip
        self._executor = CommandExecutor(
            directory=self._directory, plane=self._plane, data_plane=self._data_plane, driver=self._driver,
            deployments=self._deployments, membership_host=self._membership_host, reports=self.reports,
            budget=self._budget_check,
        )  # fmt: skip
        self._peer_wants = PeerWants(driver=self._driver, directory=self._directory, progress=self._progress)
        actions = SwarmActions(
            live=self.live, driver=self._driver, plane=self._plane, executor=self._executor,
            reader=self._data_plane.reader, membership_host=self._membership_host, peer_wants=self._peer_wants,
        )  # fmt: skip
        self._failed_pulls = FailedPulls()
        client = ManifestClient(
            self._data_plane.client, self._directory, self._data_plane.unreached, self._failed_pulls
        )
        self._deployment_executor = DeploymentExecutor(
            state=self._state, store=self._store, client=client, swarm=actions, audit=audit
        )

    def _make_publishers(self) -> None:
        self._progress_publisher = ProgressPublisher(
            table=self._progress, lifecycle=self._deployments.lifecycle, store=self._store,
            chunk_access=self._data_plane.chunk_access, directory=self._directory, roster=self._cluster_roster,
            secret=self.live.keys.node, membership_host=self._membership_host, clock=self._cluster_clock,
            histories=self._histories, budgets=self._budgets, listener=self._feed,
            sampler=SketchSampler(self._planner, self._deployments.lifecycle, self._histories),
            incoming=self._data_plane.incoming_chunks,
        )  # fmt: skip
        self._state_saver = StateSaver(
            state=self._state, register=self._statements, lifecycle=self._deployments.lifecycle,
            swim=self._membership_host.swim, table=self._progress, alarms=self.reports.alarms, witness=self._witness,
            histories=self._histories, budgets=self._budgets,
        )  # fmt: skip
        self._audit_gossip = AuditGossip(
            self.reports.audit, self._witness, self._membership_host, self._directory, self._state, self.reports.alarms,
            self.live,
        )  # fmt: skip
        watch = IdentityWatch(self._directory.own)
        self._identity_alarms = IdentityAlarms(self._directory, self.reports, watch)
        self._member_events = MemberEvents(
            self._driver, self._plane, self._deployments, self._progress_publisher, self._membership_host,
            self.reports.alarms, self._audit_gossip, self._nursery,
        )  # fmt: skip

    def _make_api(self) -> None:
        checks = CopyChecks(self._deployments.lifecycle, self._directory, self._data_plane.client)
        self._rack_copies = RackCopies(self.live, self._progress, self._directory, checks)
        self._store_calls = StoreCalls(self._store, self._state, self.reports.alarms)
        self._watermarks = Watermarks(
            self.live, self._store, self._deployments.lifecycle, self.reports.alarms, self.reports.audit,
            copies=self._rack_copies, calls=self._store_calls,
        )  # fmt: skip
        self._hooks = Hooks(self.live, self._deployments.lifecycle, self.reports.alarms, self._store)
        self._local_servers = LocalServers()
        config = self.live.config
        self._inbox = Inbox(
            config.store.inbox, self._deployments.offer, settings=settings_mapping.inbox_settings(config),
            memory=self._state,
        )  # fmt: skip
        self._credentials = CredentialsWatch(self.live, self._deployments.lifecycle, self.reports.alarms)
        self._view = DaemonStatus(
            live=self.live, swim=self._membership_host.swim, planner=self._planner,
            lifecycle=self._deployments.lifecycle, progress=self._progress, data_plane=self._data_plane,
            plane=self._plane, inbox=self._inbox, reports=self.reports, lag=self._lag, hooks=self._hooks,
            slow_steps=self._slow_steps, fresh_look=FreshLook(self._store.glance),
            identities=self._identity_alarms.watch,
            watermarks=self._watermarks, local_servers=self._local_servers, clock=self._cluster_clock,
            histories=self._histories, budget_check=self._budget_check,
            fine_sketches=FineSketches(self._plane, self._nursery), credential_ends=self._credentials.ends,
        )  # fmt: skip
        self.reloader = Reloader(self.live, self.reports.alarms, self.change)
        self._want_orders = WantOrders(
            live=self.live, state=self._state, driver=self._deployments, progress=self._progress_publisher,
            audit=self.reports.audit,
        )  # fmt: skip
        self._operations = AdminOperations(
            membership_host=self._membership_host, lifecycle=self._deployments.lifecycle, driver=self._deployments,
            store=self._store, store_calls=self._store_calls, table=self._progress, audit=self.reports.audit,
            witness=self._witness, reloader=self.reloader, watermarks=self._watermarks, budgets=self._budget_orders,
            wants=self._want_orders,
        )  # fmt: skip
        self._publishing = JobPublishing(
            live=self.live, view=self._view, driver=self._deployments, store=self._store, statements=self._statements,
            nursery=self._nursery, state=self._state, progress=self._progress_publisher,
        )  # fmt: skip

    @contextlib.asynccontextmanager
    async def serving(self, *, ending: Callable[[], None] = lambda: None) -> AsyncIterator[None]:
        """Everything listens, and unknown keys are refused. ``ending`` is called at the end, before all is closed."""
        config = self.live.config
        async with trio.open_nursery() as outer:
            try:
                outer.start_soon(self.reports.audit.run)
                await outer.start(self._plane.serve, config.net.bind, config.net.port)
                with _listening("TCP", *config.bulk_address, "net.bulk_port"):
                    await run_blocking(self._data_plane.server.start, *config.bulk_address)
                with _listening("UDP", config.net.bind, config.net.port, "net.port"):
                    await self._membership_host.start(outer, self._hear_membership, turn_loop=self._turn_loop)
                await self._self_checks.run(self._plane)
                async with trio.open_nursery() as inner:
                    await self._begin(inner)
                    yield
                    self._say_goodbye()
                    inner.cancel_scope.cancel()
            finally:
                ending()
                await self._close_data_plane()
            outer.cancel_scope.cancel()

    def _hear_membership(self, event: membership_events.Event) -> None:
        self._feed.member_heard(event)
        self._identity_alarms.hear(event)
        self._directory.hear(event, self._member_events)

    async def _begin(self, nursery: trio.Nursery) -> None:
        ports: dict[str, ListeningPort] = {
            "net.port": self._plane.listener, "net.bulk_port": self._data_plane.server
        }  # fmt: skip
        nursery.start_soon(self._driver.run, self._executor)
        nursery.start_soon(self._deployments.run, self._deployment_executor, self._nursery)
        self._nursery.start_soon(self._store_events.run, self._deployments, self.reports.audit)
        limits = LimitsWatch(self.reports.alarms, ports)
        hub = HubLinks(self.live, self._deployments.lifecycle, self._store)
        copies = CopiesWatch(
            live=self.live, store=self._store, lifecycle=self._deployments.lifecycle, copies=self._rack_copies,
            driver=self._deployments,
        )  # fmt: skip
        contacts = Contacts(self._membership_host, self.live)
        alone = LonelinessWatch(self._membership_host.swim, self.live, self.reports.alarms, self._state, contacts)
        services = (
            self._progress_publisher, self._lag, self._state_saver, self.reports.bugs, limits, self._identity_alarms,
            self._audit_gossip, ClockWatch(self._cluster_clock, self._clocks, self.reports.alarms, self._deployments),
            alone, contacts, Orphans(), hub, self._hooks, self._data_plane.limits, copies, self._store_calls,
            self._watermarks, FreeSpace(self._store, self.live, self._membership_host), self._peer_wants,
            StepWatches(self.live, self._publishing, self.reports.alarms),
            DriftWatch(self._view, self.live, self.reports.alarms), self._want_orders,
            self._credentials,
            LinksWatch(self._plane, self._directory, self.reports.alarms),
            PullWatch(self._failed_pulls, self._deployments.lifecycle.is_coming, self.reports.alarms),
            StoreWatch(
                self._store, self._state, self._statements, self.reports.alarms, self.live.config.store.models
            ),
        )  # fmt: skip
        for task in (*(service.run for service in services), self._keep_standing_links, self._record_refusals):
            nursery.start_soon(task)
        if self.live.config.net.background:
            nursery.start_soon(self._data_plane.sharing.run, settings_mapping.bulk_interface_address(self.live.config))
        nursery.start_soon(ask_unheard, self._directory, self._membership_host)
        nursery.start_soon(self._publishing.settle_untold)
        await leftovers.clear(self._state, self._statements, self._store, models=self.live.config.store.models)
        self._deployments.post(DaemonStarted())
        with trio.move_on_after(OPENING_MAX_S), contextlib.suppress(OSError):  # a disk whose failure is told elsewhere
            await self._models_are_open()
        await self._open_local_sockets(nursery)

    async def _models_are_open(self) -> None:
        """Before anybody asks: a job that is told that its checkpoint is not here begins a new run."""
        kept = frozenset(await run_blocking(self._state.envelopes))  # of others, holders are asked for the manifest
        while any(one.is_opening for one in self._deployments.lifecycle if one.id in kept):
            await trio.sleep(OPENING_LOOK_S)
        for record in self._deployments.lifecycle:  # `latest` and `wait` judge by what is told, also by this host
            if record.state is HostState.COMPLETE:
                self._progress_publisher.tell(record)

    async def _open_local_sockets(self, nursery: trio.Nursery) -> None:
        status = self.live.config.status
        await nursery.start(self._inbox.run)
        serve, ring = self._local_servers.serve, self._feed.ring
        orders = partial(_status_server, self._view, self._operations, self._publishing, ring)
        nursery.start_soon(serve, bind_unix(status.socket), orders)
        if status.readers != "none":
            mode = 0o666 if status.readers == "all" else 0o660
            readers = bind_unix(status.read_socket, mode=mode, group=group_number(status.read_group))
            nursery.start_soon(serve, readers, partial(_readers_server, self._view, self._publishing, ring))
        if status.metrics_port:
            page = bind_metrics(status.metrics_bind, status.metrics_port)
            nursery.start_soon(serve, page, partial(_metrics_server, self._view))

    def _say_goodbye(self) -> None:
        for record in self._deployments.lifecycle:
            self._progress_publisher.tell(record)
        self._membership_host.leave()

    async def _close_data_plane(self) -> None:
        with trio.CancelScope(shield=True):
            await run_blocking(self._data_plane.stop_moving)
            await run_blocking(self._executor.close)
            await run_blocking(self._data_plane.close)
            await run_blocking(self._state_saver.keep_all)

    async def _record_refusals(self) -> None:
        """Never returns: unknown keys that are still unknown some seconds later go into the audit log, and lines that
        wait for the log's reader to it."""
        while True:
            await until_next_look(REFUSALS_LOOK_S)
            flush_lines()
            self._delegate.record_refusals()

    async def _keep_standing_links(self) -> None:
        """Never returns: keep links to the hosts that the next deployment will need, whenever it comes."""
        directory, rack = self._directory, self.live.config.node.rack
        revision, links = -1, frozenset[NodeId]()
        while True:
            if directory.revision != revision:
                revision = directory.revision
                rack_of = {node: directory.records[node].rack for node in directory.live() - directory.unheard}
                links = standing_links(rack, rack_of, self._planner.settings)
            self._plane.keep_links(links, dials_max=DIALS_AT_ONCE)
            await until_next_look(STANDING_LINKS_S)

    def _tell_own(self) -> None:
        config = self.live.config
        self._planner.set_own(
            can_read_sources=config.sources.enabled, may_read_extra=settings_mapping.may_read_extra(config)
        )

    def change(self, config: Config, keys: Keys) -> None:
        """Apply a reload: limits, sources, trust, clients and the cluster's key ring may change while running."""
        has_new_ring = keys.cluster != self.live.keys.cluster
        for change in key_changes(self.live.keys, keys):
            self.reports.audit.record("trust changed", **change)
        self.live.config, self.live.keys = config, keys
        if has_new_ring:
            self._membership_host.keys_changed()
            self._data_plane.keys_changed()
            self.reports.audit.record("cluster keys changed", accepted=len(keys.cluster.keys))
        self._data_plane.settings_changed()
        self._plane.clients_changed()
        self._deployments.post(RosterChanged())
        self._deployments.post(TrustReloaded())
        self._deployments.post(WantsChanged(self.live.wants()))
        self._progress_publisher.tell_due(trio.current_time())
        self._tell_own()
        self._driver.look_again()
        self._membership_host.publish_capabilities()
        self._membership_host.judge_again()
        set_level(config.log.level)


# The HTTP libraries are imported by the first client of a socket (``api.local_server``).


def _status_server(
    view: DaemonStatus, operations: AdminOperations, publishing: JobPublishing, ring: EventRing
) -> RequestGuard:
    from gossipd.api.request_guard import RequestGuard
    from gossipd.api.routes import status_app

    return RequestGuard(status_app(view, operations, publishing, ring))


def _readers_server(view: DaemonStatus, publishing: JobPublishing, ring: EventRing) -> RequestGuard:
    from gossipd.api.request_guard import RequestGuard
    from gossipd.api.routes import read_app

    return RequestGuard(read_app(view, publishing, ring))


def _metrics_server(view: DaemonStatus) -> RequestGuard:
    from gossipd.api.request_guard import RequestGuard
    from gossipd.api.routes import health_app

    return RequestGuard(health_app(view))


def _random() -> Random:
    return Random(secrets.randbits(64))


@contextlib.contextmanager
def _listening(kind: str, host: str, port: int, setting: str) -> Iterator[None]:
    """Raises BindError, which names the address, for an OSError."""
    try:
        yield
    except OSError as error:
        sentence = f"cannot listen on {host} port {port} ({kind}, {setting}): {error.strerror or error}"
        raise BindError(sentence) from error
