"""When and in which form a host tells how far it is, and what it makes of what others tell."""

from __future__ import annotations

import time
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import trio
import trio.testing

from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.daemon.gossip_rules import PROGRESS_BURST, PROGRESS_PER_S
from gossipd.daemon.progress_publisher import LOOK_S, SETTLED_PER_S, TOLD_MAX, ProgressPublisher
from gossipd.deployment.cluster_clock import ClusterClock
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.events import ProgressHeard
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.signed_progress import ProgressKey, ProgressWriter, read_progress, sign_progress
from gossipd.identity.keys import SecretKey
from gossipd.store.errors import StoreUnreadableError
from membership.member import NodeId, node_id
from tests.gossipd.deployment.scripted_host import ONE, said
from tests.gossipd.manifest.making import manifest

KEY, PEER_KEY = SecretKey(b"k" * 32), SecretKey(b"p" * 32)
OWN, PEER = node_id(KEY.public.ed25519), node_id(PEER_KEY.public.ed25519)
SHORT = progress_key(ONE.id)
DOWNLOADING = Progress(state=HostState.DOWNLOADING)


class Parts:
    """A publisher among two hosts; ``told`` is what it has given to gossip."""

    def __init__(self, *records: DeploymentRecord) -> None:
        self.told: list[tuple[ProgressKey, Progress]] = []
        self.told_at_s: list[float] = []
        self.peer_signs = True
        self.slowness = 1
        self.host_count = 2
        self.table = ClusterProgress()
        lifecycle = _Lifecycle(records)
        nothing = SimpleNamespace(
            take_uploaded=dict,
            statistics=lambda: SimpleNamespace(models={}),
            publish_progress=self._publish,
            slowness=lambda: self.slowness,
        )
        known: dict[NodeId, None] = {OWN: None, PEER: None}
        directory = SimpleNamespace(own=OWN, record=known.get)
        self.publisher = ProgressPublisher(
            table=self.table, lifecycle=cast(Any, lifecycle), store=cast(Any, nothing), chunk_access=cast(Any, nothing),
            directory=cast(Any, directory), roster=cast(Any, self),
            secret=KEY, membership_host=cast(Any, nothing), clock=ClusterClock(),
        )  # fmt: skip

    def _publish(self, wire_key: bytes, version: int, payload: bytes) -> None:
        key = ProgressKey.decode(wire_key)
        self.told.append((key, read_progress(key, payload)))
        self.told_at_s.append(trio.current_time())

    def progress_writer(self, node: NodeId) -> ProgressWriter | None:
        return ProgressWriter(PEER_KEY.public.ed25519, self.peer_signs, 0) if node == PEER else None

    def all_sign_progress(self) -> bool:
        return self.peer_signs

    async def run(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.publisher.run()

    def hear(self, node: NodeId, progress: Progress, *, is_signed: bool = True) -> ProgressHeard | None:
        key = ProgressKey(node, SHORT, is_signed)
        payload = sign_progress(PEER_KEY, key, 1, progress) if is_signed else progress.to_bytes()
        return self.publisher.heard(key.encode(), 1, payload)


class _Lifecycle:
    def __init__(self, records: tuple[DeploymentRecord, ...]) -> None:
        self._records = records

    def __iter__(self) -> Any:
        return iter(self._records)

    def with_key(self, key: bytes) -> DeploymentRecord | None:
        return next((one for one in self._records if progress_key(one.id) == key), None)

    def progress_of(self, record: DeploymentRecord, now: float, wall_s: float) -> Progress:
        return record.progress(wall_s)


def refused(number: int) -> DeploymentRecord:
    """A statement whose manifest is refused for want of a key."""
    deployment = DeploymentId(number.to_bytes(32, "big"))
    return DeploymentRecord(
        deployment, said(deployment), is_proven=False, state=HostState.FAILED, reason=HostReason.REFUSED_KEY
    )


def complete(number: int) -> DeploymentRecord:
    deployment = DeploymentId(number.to_bytes(32, "little"))
    return DeploymentRecord(deployment, said(deployment), state=HostState.COMPLETE, changed=False)


async def test_a_host_with_many_deployments_tells_all_of_them_in_turn(
    autojump_clock: trio.testing.MockClock,
) -> None:
    parts = Parts(*map(complete, range(600)))
    await parts.run(0.6)
    first = len(parts.told)
    assert first <= 0.75 * (PROGRESS_BURST + PROGRESS_PER_S), "others would not look at more"
    parts.publisher.lifecycle._records[0].changed = True  # type: ignore[attr-defined]
    await parts.run(1.1)
    assert parts.told[first][0].deployment == progress_key(complete(0).id), "what has changed goes first"
    await parts.run(60.0)
    assert len({key.deployment for key, _ in parts.told}) == 600
    assert len(parts.told) <= 0.75 * (PROGRESS_BURST + 62 * PROGRESS_PER_S)


async def test_settled_versions_have_a_share_of_gossip_however_many_they_are(
    autojump_clock: trio.testing.MockClock,
) -> None:
    parts = Parts(*map(complete, range(100)))
    await parts.run(10.0)
    assert len(parts.told) == 100, "each once, as this host has just started"
    await parts.run(300.0)
    again = Counter(key.deployment for key, _ in parts.told[100:])
    assert 0.9 < sum(again.values()) / (300.0 * SETTLED_PER_S / parts.host_count) < 1.1
    assert set(again.values()) <= {4, 5, 6}, "in turn"
    parts.told.clear()
    parts.publisher.lifecycle._records[7].changed = True  # type: ignore[attr-defined]
    await parts.run(1.1)
    assert [key.deployment for key, _ in parts.told[:1]] == [progress_key(complete(7).id)]


async def test_after_a_start_what_moves_is_told_before_what_ended_long_ago(
    autojump_clock: trio.testing.MockClock,
) -> None:
    old = [complete(number) for number in range(600)]
    for record in old:
        record.changed = record.is_of_earlier_run = True
    new = DeploymentRecord(ONE.id, said(), ONE, state=HostState.DOWNLOADING)
    parts = Parts(*old, new)
    parts.publisher.store = cast(
        Any, SimpleNamespace(current=lambda _: None, statistics=parts.publisher.store.statistics)
    )
    await parts.run(LOOK_S + 0.1)
    assert parts.told[0][0].deployment == SHORT
    new.state, new.changed = HostState.COMPLETE, True
    before = len(parts.told)
    await parts.run(1.1)
    assert (parts.told[before][0].deployment, parts.told[before][1].state) == (SHORT, HostState.COMPLETE)


async def test_what_ends_before_it_was_told_at_all_waits_for_nothing_that_goes_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    waiting = [
        DeploymentRecord(DeploymentId(number.to_bytes(32, "little")), said(), ONE, changed=True)
        for number in range(1, 90)
    ]
    new = DeploymentRecord(ONE.id, said(), ONE, state=HostState.COMPLETE)
    parts = Parts(*waiting, new)
    parts.publisher.store = cast(
        Any, SimpleNamespace(current=lambda _: None, statistics=parts.publisher.store.statistics)
    )

    async def change_all() -> None:
        while True:  # as models that wait for space do
            for record in waiting:
                record.changed = True
            await trio.sleep(LOOK_S / 2)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change_all)
        await parts.run(20.0)
        nursery.cancel_scope.cancel()
    assert SHORT in [key.deployment for key, _ in parts.told]


async def test_what_has_changed_last_is_told_once_more_soon(autojump_clock: trio.testing.MockClock) -> None:
    records = [complete(number) for number in range(3)]
    records[1].changed = True
    parts = Parts(*records)
    await parts.run(40.0)
    first = parts.told_at_s[0]
    times = [round(at - first) for (key, _), at in zip(parts.told, parts.told_at_s, strict=True)
             if key.deployment == progress_key(records[1].id)]  # fmt: skip
    assert times[1] in (3, 4) and times[2] - times[1] == times[3] - times[2] == 15


async def test_what_is_told_of_no_longer_is_forgotten(autojump_clock: trio.testing.MockClock) -> None:
    parts = Parts(*map(complete, range(100)))
    await parts.run(10.0)
    parts.publisher.lifecycle = cast(Any, _Lifecycle(tuple(map(complete, range(3)))))
    await parts.run(2.0)
    assert parts.publisher.tellings.keys() == {complete(number).id for number in range(3)}


async def test_a_store_that_cannot_be_read_for_a_while_is_told_without_current(
    autojump_clock: trio.testing.MockClock,
) -> None:
    is_closed = True

    def current(name: str) -> int:
        if is_closed:
            raise StoreUnreadableError(f"{name} cannot be read by the daemon: Permission denied")
        return 3

    record = DeploymentRecord(ONE.id, said(), ONE, state=HostState.COMPLETE)
    parts = Parts(record)
    parts.publisher.store.current = current  # type: ignore[method-assign]
    await parts.run(1.1)
    is_closed, record.changed = False, True
    await parts.run(1.1)
    assert [(one.state, one.current) for _, one in parts.told] == [(HostState.COMPLETE, None), (HostState.COMPLETE, 3)]


async def test_only_the_versions_that_current_leaves_and_leads_to_are_told_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    versions = [manifest(version=version) for version in range(1, 30)]
    records = [
        DeploymentRecord(one.id, said(one.id), manifest=one, state=HostState.COMPLETE, changed=True) for one in versions
    ]
    parts, leads_to = Parts(*records), [7]
    parts.publisher.store.current = lambda name: leads_to[0]  # type: ignore[method-assign]
    await parts.run(60.0)
    told_before, leads_to[0] = len(parts.told), 12
    for record in records:
        record.current_moved = True
    parts.publisher.refreshed_s = 1e9  # no refresh comes between
    await parts.run(3.0)
    told = [(key.deployment, progress.current) for key, progress in parts.told[told_before:]]
    assert sorted(told) == sorted((progress_key(versions[number - 1].id), 12) for number in (7, 12))


async def test_who_lacks_cpu_tells_numbers_seldom_and_states_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    running = DeploymentRecord(ONE.id, said(), ONE, state=HostState.DOWNLOADING)
    parts = Parts(running)
    await parts.run(12.1)
    assert len(parts.told) == 12
    parts.told.clear()
    parts.slowness = 8
    await parts.run(12.1)
    assert len(parts.told) == 3, "rates of a host that is heard more seldom would not count"
    running.changed = True
    await parts.run(0.6)
    assert len(parts.told) == 4


async def test_a_refusal_is_told_at_once_though_its_manifest_is_not_here(
    autojump_clock: trio.testing.MockClock,
) -> None:
    parts = Parts(refused(1))
    await parts.run(0.6)
    assert [(key.is_signed, said_of.reason) for key, said_of in parts.told] == [(True, HostReason.REFUSED_KEY)]


async def test_many_refusals_do_not_crowd_out_the_rest(autojump_clock: trio.testing.MockClock) -> None:
    running = DeploymentRecord(ONE.id, said(), ONE, state=HostState.DOWNLOADING)
    parts = Parts(*map(refused, range(1, 65)), running)
    await parts.run(10.0)
    about = [key.deployment for key, _ in parts.told]
    assert 8 <= about.count(SHORT) <= 11
    assert len(about) - about.count(SHORT) <= 11


async def test_the_unsigned_form_is_told_beside_while_an_older_host_lives(
    autojump_clock: trio.testing.MockClock,
) -> None:
    parts = Parts(refused(1))
    parts.peer_signs = False
    await parts.run(0.6)
    assert [(key.is_signed, said_of.reason) for key, said_of in parts.told] == [
        (True, HostReason.REFUSED_KEY),
        (False, HostReason.REFUSED),
    ]


async def test_what_a_host_signs_counts_and_what_it_does_not_sign_is_passed_over() -> None:
    parts = Parts()
    assert parts.hear(PEER, DOWNLOADING, is_signed=False) is None
    assert parts.table.host(PEER, SHORT) is None
    assert parts.hear(PEER, DOWNLOADING) == ProgressHeard(PEER, SHORT)
    assert parts.hear(OWN, DOWNLOADING) is None
    parts.peer_signs = False
    assert parts.hear(PEER, DOWNLOADING, is_signed=False) == ProgressHeard(PEER, SHORT)


async def test_a_host_that_has_refused_is_not_asked_for_the_manifest() -> None:
    parts = Parts()
    for state in (HostState.FAILED, HostState.EXPIRED):
        assert parts.hear(PEER, Progress(state=state, reason=HostReason.REFUSED_KEY)) is None
    knows = Progress(state=HostState.FAILED, reason=HostReason.REFUSED_KEY, deployer=b"deployer")
    assert parts.hear(PEER, knows) == ProgressHeard(PEER, SHORT, has_manifest=False, tells_deployer=True)


async def test_what_is_heard_and_told_becomes_the_course_of_a_deployment() -> None:
    parts = Parts(DeploymentRecord(ONE.id, said(), ONE, state=HostState.DOWNLOADING), refused(1))
    parts.hear(PEER, Progress(state=HostState.DOWNLOADING, chunks_verified=1, source_bytes=7))
    parts.publisher.tell(next(iter(parts.publisher.lifecycle)))
    history = parts.publisher.histories.live[SHORT]
    assert history.hosts.keys() == {PEER, OWN}
    assert sum(one[0] for one in history.moved.values()) == 7
    assert set(parts.publisher.histories.live) == {SHORT}, "of what nobody has proven there is none"


async def test_a_host_of_tomorrow_was_complete_when_it_was_heard() -> None:
    parts, now_s = Parts(), int(time.time())
    parts.hear(PEER, Progress(state=HostState.COMPLETE, started_s=now_s + 86_400, elapsed_s=10))
    row = parts.table.host(PEER, SHORT)
    assert row is not None
    assert now_s <= row.progress.started_s + row.progress.elapsed_s <= time.time()


async def test_bytes_of_fetches_that_broke_off_are_told(autojump_clock: trio.testing.MockClock) -> None:
    parts = Parts(DeploymentRecord(ONE.id, said(), ONE, state=HostState.DOWNLOADING))
    for filled in (5, 6):
        parts.publisher.incoming.ended_early((ONE.id, ChunkIndex(0)), filled)
    parts.publisher.incoming.ended_early((DeploymentId(b"?" * 32), ChunkIndex(0)), 9)
    await parts.run(3.0)
    assert {progress.cancelled_bytes for _, progress in parts.told[-2:]} == {11}


async def test_a_host_that_makes_up_deployments_pushes_out_no_course() -> None:
    parts = Parts(DeploymentRecord(ONE.id, said(), ONE, state=HostState.DOWNLOADING))
    parts.hear(PEER, DOWNLOADING)
    for number in range(100):
        key = ProgressKey(PEER, number.to_bytes(8, "big"), is_signed=True)
        parts.publisher.heard(key.encode(), 1, sign_progress(PEER_KEY, key, 1, DOWNLOADING))
    assert set(parts.publisher.histories.live) == {SHORT}


async def test_many_records_that_are_due_at_once_are_told_in_several_looks(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def deployed(number: int) -> DeploymentRecord:
        deployment = DeploymentId(number.to_bytes(32, "big"))
        return DeploymentRecord(deployment, said(deployment), manifest=ONE, state=HostState.DOWNLOADING)

    parts = Parts(*[deployed(number << 200) for number in range(1, 41)])
    await parts.run(2 * LOOK_S + 0.6)
    assert max(Counter(parts.told_at_s).values()) == TOLD_MAX
    assert len({key.deployment for key, _ in parts.told[:40]}) == 40, "each once before any is told again"
