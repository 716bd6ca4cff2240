"""What a swarm looks at a few times a second, not at every event: roles, slow hosts, lost requests, stalls.

What lives here: functions over one ``DeploymentSwarm``. What does not: any reaction to a single chunk or message.
"""

from __future__ import annotations

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import CancelFetch, FailReason, ProbeSource, ReportStall, StallReason
from gossipd.core.ids import SOURCE, Origin
from gossipd.swarm.deployment_swarm import DeploymentSwarm
from gossipd.swarm.rendezvous import bucket_of
from gossipd.swarm.roles import Roles
from gossipd.swarm.surroundings import Surroundings
from membership.member import NodeId

_LOST_AFTER = 2.0  # of the timeout by which the adapter ends every fetch: this one will never end


def refresh_roles(swarm: DeploymentSwarm, around: Surroundings, now: float) -> bool:
    """Recompute roles, neighbours and source readers if the members may have changed; whether it was so."""
    _look_at_doubted(swarm, now)
    counts = swarm.availability.counts
    rack_peers = sum(1 for node in swarm.roles.rack_peers if counts.get(node))
    # Few rack peers must be able to fill the whole window, so each may be asked for more.
    each = -(-swarm.times.window_max // max(1, rack_peers))
    swarm.scheduler.asked_max = max(swarm.settings.fetches_per_peer_max, each)
    slow_hosts, replica, origins = swarm.slow_hosts, swarm.replica, swarm.origins.among(counts)
    if swarm.interests.is_uniform:  # else a host that wants little would pass for one that is behind
        slow_hosts.look(
            swarm.availability, swarm.subscriptions, swarm.roles.rack_peers - origins,
            held=replica.held_count, missing=replica.missing_count, chunk_time_s=swarm.times.chunk_time_s, now=now,
        )  # fmt: skip
    slow = slow_hosts.others | {around.own.node} if slow_hosts.is_own else slow_hosts.others
    swarm.own = around.own
    roles = swarm.class_roles
    behind = swarm.judge_rates(now)
    swarm.times.is_level = not behind and not slow_hosts.others
    swarm.scheduler.slow = slow_hosts.others - (swarm.arrival_rates.useful & behind)
    equals = swarm.arrival_rates.alike & (swarm.roles.rack_peers - slow_hosts.others)
    swarm.scheduler.equals, swarm.scheduler.behind = equals if behind else frozenset(), behind
    slow |= _without_duties(swarm.roles, origins)
    behind = (behind | swarm.peers.doubted) - slow  # so that nobody waits for them
    stands_in = swarm.stand_in.look(
        swarm.reader, around.own, roles, swarm.peers, is_held_back=swarm.is_held_back(around, now), now=now
    )
    has_moved = roles.refresh(around.own, swarm.peers, slow, around.seeds, now, behind=behind)
    reads_extra = _look_at_extra_reads(swarm, around, now)
    if not has_moved and not stands_in and not reads_extra:
        return False
    swarm.reader.set_classes(roles.class_of)
    lines = swarm.extra_reader.lines(swarm.stand_in.lines(roles.reader_lines, around.own.node), around.own.node)
    heard = swarm.peers.usable(swarm.subscriptions.heard_s.keys() & roles.neighbours, now)
    swarm.claims_released(swarm.reader.set_readers(lines, by_chunk=roles.readers_are_first, now=now, heard=heard))
    for node in sorted(swarm.reader.inherited.take_unasked() & {*swarm.reader.readers}):
        swarm.subscriptions.renew(node)
    swarm.demand.set_places(
        roles.places, roles.rack_places, now, swarm.times.late_wait_s,
        line_of=bucket_of if roles.class_of is None else roles.line_of, lone=roles.lone,
    )  # fmt: skip
    _probe_if_reader(swarm)
    return True


def _look_at_doubted(swarm: DeploymentSwarm, now: float) -> None:
    """What a peer has said counts no longer when it comes to be doubted. When it delivers it is asked once more."""
    before, swarm.doubted = swarm.doubted, swarm.peers.doubted
    is_late = swarm.replica.nothing_s(now) >= swarm.times.fetch_timeout_s()
    in_vain = swarm.first_claims.uncounted(swarm.doubted, swarm.peers.records, is_late=is_late)
    uncounted = swarm.doubted | in_vain
    if uncounted != swarm.uncounted:
        swarm.uncounted = uncounted
        swarm.reader.rebuild(swarm.present())
    for node in sorted(swarm.doubted - before):
        swarm.drop_holdings(node, now)
    for node in sorted(before - swarm.doubted):
        swarm.subscriptions.forget(node)


def _look_at_extra_reads(swarm: DeploymentSwarm, around: Surroundings, now: float) -> bool:
    """Judge whether this host reads beside the source readers; whether it has changed."""
    is_able = around.may_read_extra and swarm.interests.is_uniform and not swarm.stand_in.is_active
    return swarm.extra_reader.look(
        swarm.arrival_rates.link_use(swarm.times.shown_rate()), swarm.reader, around.own, swarm.roles, swarm.peers,
        held=swarm.replica.held_count, may_read=is_able and not swarm.is_held_back(around, now),
        chunk_time_s=swarm.times.chunk_time_s, now=now,
    )  # fmt: skip


def _without_duties(roles: Roles, origins: frozenset[NodeId]) -> frozenset[NodeId]:
    """The origins, which import nothing: their rack peers do. Not where a rack would be left without a host."""
    rack_of = roles.rack_of.get
    return frozenset(node for node in origins if not origins.issuperset(roles.racks.get(rack_of(node, ""), ())))


def uploads_likely(swarm: DeploymentSwarm) -> int:
    """How many fetches our rack peers are likely to have in flight, judged by the one that is least behind us; an
    origin has the whole cluster's."""
    counts, listened, times = swarm.availability.counts, swarm.subscriptions.asked_s, swarm.times
    if swarm.origins.is_own:
        return 2 * swarm.settings.flows(swarm.replica.shape.chunk_count)
    known = [counts.get(node, 0) for node in swarm.roles.rack_peers if node in listened]
    return times.window(max(0, swarm.replica.held_count - max(known))) if known else times.window_min


def _probe_if_reader(swarm: DeploymentSwarm) -> None:
    """A source reader probes its source once before it relies on it."""
    if swarm.own.node in swarm.reader.readers and swarm.reader.readable is None and not swarm.probe_asked:
        swarm.probe_asked = True
        swarm.commands.append(ProbeSource(swarm.deployment))


def is_outpaced(swarm: DeploymentSwarm) -> bool:
    """Whether a rack peer would be the better seed, because its link is quicker than this host's."""
    rates, own = swarm.arrival_rates, swarm.own
    if not rates.is_own_behind or not swarm.replica.missing_count:
        return False
    able = [view.node for view in swarm.peers.members() if view.rack == own.rack and view.can_read_sources]
    return not (rates.known - rates.behind).isdisjoint(able)


def give_up_lost(swarm: DeploymentSwarm, now: float) -> None:
    """End the requests that the adapter has not ended, so that they do not block their chunks for ever."""
    limit_s = _LOST_AFTER * swarm.times.fetch_timeout_s()
    read_limit_s = swarm.reader.lost_s()
    for chunk, flights in list(swarm.replica.flights.items()):
        for flight in list(flights):
            age_s = now - max(flight.started_s, flight.moved_s)
            if isinstance(flight.supplier, Origin):
                if age_s > read_limit_s and swarm.replica.land(chunk, SOURCE):
                    swarm.want_again(chunk, now)
            elif age_s > limit_s:
                swarm.commands.append(CancelFetch(swarm.deployment, chunk, flight.supplier))
                swarm.fetch_failed(chunk, flight.supplier, FailReason.SLOW, now)


def want_copies(swarm: DeploymentSwarm, now: float) -> None:
    """The chunks that were to be copied have not come, nor has any other for long: want them as all others."""
    replica = swarm.replica
    waited_s = swarm.settings.stall_s * (1 if swarm.copies.bit_count() == replica.missing_count else 10)
    if not swarm.copies or swarm.is_paused or now - replica.progress_s < waited_s:
        return
    copies = ChunkSet(replica.shape.chunk_count, swarm.copies)
    swarm.copies = 0
    swarm.demand.want(copies)
    swarm.reader.rebuild(swarm.present())
    swarm.consider(copies, now)


def report_stall(swarm: DeploymentSwarm, *, alone: bool, reads: int, now: float) -> None:
    """Report why no chunk comes, or that chunks come again. ``reads``: of all deployments."""
    reason, peer = None, None
    if swarm.replica.missing_count and not swarm.is_paused:
        holders = bool(swarm.demand.ready_count() or swarm.replica.fetches)
        readers = bool(swarm.reader.readers) or not swarm.replica.shape.has_sources  # storage is not to blame
        unreached = _unreached(swarm)
        swarm.stall.delivered(_recovered(swarm, now))
        reason = swarm.stall.judge(
            swarm.replica, now=now, alone=alone, holders=holders, readers=readers, unreached=bool(unreached)
        )
        if reason is StallReason.HOLDER_SILENT:
            peer = swarm.stall.silent_peer(swarm.replica, unreached, now)
    reads = reads if swarm.replica.reads else 0
    if swarm.stall.is_news(reason, peer, now, reads=reads):
        swarm.commands.append(ReportStall(swarm.deployment, reason, peer, reads=reads))


def reads_of(swarm: DeploymentSwarm) -> int:
    """How many reads of storage, of those that share this host's limit, are of this deployment. The chunks of one read
    come one after the other."""
    chunks, each = swarm.replica.reads, swarm.reader.window.unit_chunks
    return min(1, chunks) if swarm.reader.from_start else -(-chunks // each)


def _recovered(swarm: DeploymentSwarm, now: float) -> list[NodeId]:
    """The peers that were cut for silence and have delivered since, to this deployment or another."""
    asked = [(node, swarm.peers.records.get(node)) for node in swarm.stall.cut(now)]
    return [node for node, peer in asked if peer is not None and not peer.slow]


def _unreached(swarm: DeploymentSwarm) -> list[NodeId]:
    """The living peers, with which this host has a link, that could not be connected to since the last chunk came. One
    that has come back has no failures."""
    asked = [(node, swarm.peers.records.get(node)) for node in swarm.stall.gone(swarm.replica.progress_s)]
    return [node for node, peer in asked if peer is not None and peer.member and peer.reachable and peer.failures]
