"""What makes an identity one that is seen twice, and what does not."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from gossipd.daemon.identity_alarms import IdentityAlarms
from gossipd.daemon.identity_watch import FINDINGS_MAX, GRACE_S, LET_IN_S, TWICE_S, IdentityFinding, IdentityWatch
from gossipd.daemon.member_directory import MemberDirectory
from membership.member import Record
from tests.gossipd.daemon.test_alarms import Told
from tests.gossipd.daemon.test_state_dir import record

OWN = replace(record(9), host="10.0.0.9")
NODE = replace(record(1), name="gpu-1", host="10.0.0.1")
CLONE = replace(NODE, host="10.0.0.2")


def look(watch: IdentityWatch, records: Iterable[Record], now: float) -> list[IdentityFinding]:
    table = {one.node: one for one in records}
    return watch.look(table, set(table), now, heard=set(table))


def test_a_member_that_comes_back_to_its_address_is_two_hosts_until_that_is_long_ago() -> None:
    watch = IdentityWatch(OWN.node)
    for now, one in ((0.0, NODE), (1.0, CLONE), (3.0, NODE)):
        assert not watch.is_twice(NODE.node)
        watch.heard(one, now)
    assert watch.is_twice(NODE.node)
    (found,) = look(watch, [NODE], 4.0)
    assert (found.code, found.subject) == ("E_IDENTITY_TWICE", "gpu-1")
    assert f"10.0.0.1:{NODE.port} and 10.0.0.2:{NODE.port}" in found.sentence
    watch.heard(CLONE, 50.0)
    assert look(watch, [CLONE], 51.0) == [found], "the same alarm"
    assert look(watch, [CLONE], 50.0 + TWICE_S) == []
    assert not watch.is_twice(NODE.node)


def test_a_member_that_moves_or_restarts_is_one_host() -> None:
    watch = IdentityWatch(OWN.node)
    for now, one in ((0.0, NODE), (5.0, replace(NODE, boot=2)), (9.0, CLONE), (12.0, replace(CLONE, boot=9))):
        watch.heard(one, now)
    watch.heard(NODE, 12.0 + TWICE_S)  # the next day
    assert look(watch, [NODE], 13.0 + TWICE_S) == []


def test_our_own_key_is_used_twice_when_we_are_outdone_again_after_we_answered() -> None:
    watch = IdentityWatch(OWN.node)
    watch.outdone(OWN, ("10.0.0.7", 7946), 0.0)
    assert look(watch, [OWN], 1.0) == [], "we had lost our state"
    watch.outdone(OWN, ("10.0.0.7", 7946), 30.0)
    assert watch.is_twice(OWN.node)
    (found,) = look(watch, [OWN], 31.0)
    assert "10.0.0.7:7946" in found.sentence
    assert "10.0.0.9" in found.sentence


def test_two_living_keys_with_one_name_or_address_are_told_after_a_while() -> None:
    for other, code in (
        (replace(record(2), name="gpu-1", host="10.0.0.2"), "E_NAME_CONFLICT"),
        (replace(record(2), name="gpu-2", host="10.0.0.1"), "E_ADDRESS_CONFLICT"),
        (replace(record(2), host="10.0.0.2", transport_key=NODE.transport_key), "E_IDENTITY_TWICE"),
    ):
        watch = IdentityWatch(OWN.node)
        assert look(watch, [NODE, other], 0.0) == [], "its key may have been made again"
        (found,) = look(watch, [NODE, other], GRACE_S)
        assert found.code == code
        assert f"10.0.0.1:{NODE.port}" in found.sentence
        assert other.host in found.sentence or other.name in found.sentence
        both = {NODE.node: NODE, other.node: other}
        assert watch.look(both, {NODE.node}, GRACE_S + 1, heard=set(both)) == [], "the other is dead"


def test_a_made_up_member_takes_nobodys_name() -> None:
    watch, other = IdentityWatch(OWN.node), replace(record(2), name="gpu-1", host="10.0.0.2")
    both = {NODE.node: NODE, other.node: other}
    for now in (0.0, GRACE_S):
        assert watch.look(both, set(both), now, heard={NODE.node}) == []
    assert watch.look(both, set(both), GRACE_S + 1, heard=set(both)) == [], "it may be new"
    (found,) = watch.look(both, set(both), 2 * GRACE_S + 1, heard=set(both))
    assert found.code == "E_NAME_CONFLICT"


def test_a_host_that_is_not_let_in_with_a_members_name_is_told_with_both_addresses() -> None:
    watch = IdentityWatch(OWN.node)
    watch.conflict("gpu-1", record(2).node, ("10.0.0.2", 7946), 0.0)
    (found,) = look(watch, [OWN, NODE], 1.0)
    assert found.code == "E_NAME_CONFLICT"
    assert f"at 10.0.0.1:{NODE.port} and 10.0.0.2:7946" in found.sentence
    assert look(watch, [OWN], 2.0) == [], "nobody has the name any more"
    assert look(watch, [OWN, NODE], TWICE_S + 1) == [], "it has not asked again"


def test_a_name_is_wanted_no_longer_when_the_host_is_a_member() -> None:
    for let_in, codes in (
        (replace(record(2), name="gpu-2", host="10.0.0.2"), []),
        (replace(record(2), name="gpu-1", host="10.0.0.2"), ["E_NAME_CONFLICT"]),
    ):
        watch = IdentityWatch(OWN.node)
        watch.conflict("gpu-1", let_in.node, ("10.0.0.2", 7946), 0.0)
        assert len(look(watch, [OWN, NODE], 1.0)) == 1
        watch.heard(let_in, 2.0)
        look(watch, [OWN, NODE, let_in], 2.0)
        assert [one.code for one in look(watch, [OWN, NODE, let_in], 2.0 + GRACE_S)] == codes
        assert look(watch, [OWN, NODE], 3.0 + GRACE_S) == [], "it has left"


def test_a_name_conflict_has_no_gap_while_the_other_host_is_let_in() -> None:
    watch, other = IdentityWatch(OWN.node), replace(record(2), name="gpu-1", host="10.0.0.2")
    watch.conflict("gpu-1", other.node, (other.host, other.port), 0.0)
    seen = [look(watch, [OWN, NODE], 1.0)]
    watch.heard(other, 2.0)
    seen += [look(watch, [OWN, NODE, other], float(now)) for now in range(2, 200, 5)]
    assert [len(found) for found in seen] == [1] * len(seen)
    assert len({one for found in seen for one in found}) == 1, "one alarm, which does not ring again"


def test_a_conflict_with_a_member_that_never_speaks_here_ends_within_a_minute() -> None:
    watch, other = IdentityWatch(OWN.node), replace(record(2), name="gpu-1", host="10.0.0.2")
    both = {NODE.node: NODE, other.node: other}
    watch.conflict("gpu-1", other.node, (other.host, other.port), 0.0)
    for now in (2.0, 30.0):
        watch.heard(other, now)
        (found,) = watch.look(both, set(both), now, heard={NODE.node})
        assert found.code == "E_NAME_CONFLICT"
    assert watch.look(both, {NODE.node}, 40.0, heard={NODE.node}) == [], "it is dead"
    assert watch.look(both, set(both), 2.0 + LET_IN_S, heard={NODE.node}) == []


def test_a_member_that_brings_hosts_along_fills_no_page() -> None:
    watch = IdentityWatch(OWN.node)
    for number in range(1000):
        watch.conflict("gpu-1", record(number % 250).node, ("10.0.0.2", number + 1), 0.0)
    crowd = [replace(record(number), name=f"n{number % 40}", host="10.0.0.3") for number in range(200)]
    look(watch, crowd, 0.0)
    assert len(look(watch, [*crowd, NODE], GRACE_S)) <= 3 * FINDINGS_MAX


def test_nothing_is_looked_at_again_while_neither_a_record_nor_time_can_tell_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, looked = SimpleNamespace(), list[float]()
    directory, watch = MemberDirectory(OWN.node), IdentityWatch(OWN.node)
    reports = SimpleNamespace(alarms=Told().alarms, audit=SimpleNamespace(record=lambda *_, **__: None))
    alarms, plain_look = IdentityAlarms(directory, cast(Any, reports), watch), watch.look

    def noted_look(*given: Any, **heard: Any) -> list[IdentityFinding]:
        looked.append(clock.now)
        return plain_look(*given, **heard)

    def pass_by(*times: float) -> None:
        for clock.now in times:
            alarms.look()

    monkeypatch.setattr("trio.current_time", lambda: clock.now)
    monkeypatch.setattr(watch, "look", noted_look)
    directory.begin(OWN, [NODE])
    pass_by(1.0, 6.0, 11.0)
    assert looked == [1.0]
    watch.conflict("gpu-1", record(2).node, ("10.0.0.2", 7946), clock.now)
    pass_by(16.0, 21.0, 21.0 + TWICE_S, 26.0 + TWICE_S)
    assert looked == [1.0, 16.0, 21.0, 21.0 + TWICE_S], "until it has not asked for long"
    directory.revision += 1
    pass_by(31.0 + TWICE_S)
    assert looked[-1] == clock.now
