"""The alarm of a control port that is closed: by direction, after fifteen seconds, while others are alive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gossipd.audit.log import AuditLog
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.links_watch import WITHOUT_S, LinkLoss, LinksSeen, LinksWatch
from gossipd.sessions.channel_table import LinkCounts
from membership.member import NodeId

OWN, A, B = (NodeId(bytes([number]) * 16) for number in range(3))


def seen(
    *, wanted: int = 2, up: int = 2, standing: int = 2, accepted: int = 2, others: Sequence[str] = ("a:1", "b:1")
) -> LinksSeen:
    return LinksSeen(links=LinkCounts(wanted, up, standing), accepted=accepted, others=others, own="own:1")


def after(seconds: float, facts: LinksSeen) -> str | None:
    """What is told when it has been so for that long."""
    loss = LinkLoss(0.0)
    for now in range(int(seconds)):
        assert loss.look(float(now), facts) is None
    return loss.look(seconds, facts)


def test_no_link_to_others_for_fifteen_seconds_names_their_addresses() -> None:
    told = after(WITHOUT_S, seen(up=0, accepted=0))
    assert told is not None
    assert told.startswith("no control link to any other host comes up; members are alive at a:1, b:1: ")
    assert "open `net.port` for TCP" in told


def test_no_link_of_others_for_fifteen_seconds_names_this_hosts_address() -> None:
    told = after(WITHOUT_S, seen(accepted=0))
    assert told is not None
    assert told.startswith("no other host's control link comes in here, at own:1: open `net.port`")


@pytest.mark.parametrize(
    "facts",
    [
        seen(),
        seen(up=1, accepted=1),
        seen(up=0, accepted=0, others=()),
        seen(wanted=0, up=0, standing=0, accepted=0),
        seen(standing=0, accepted=0),
    ],
)
def test_one_link_is_enough_and_none_is_missed_where_none_is_kept(facts: LinksSeen) -> None:
    assert after(2 * WITHOUT_S, facts) is None


def test_a_host_that_stood_still_has_missed_no_links() -> None:
    loss = LinkLoss(0.0)
    assert loss.look(1.0, seen()) is None
    told = [loss.look(101.0 + more, seen(up=0, accepted=0)) for more in range(20)]
    assert told[:10] == [None] * 10 and told[-1] is not None


def test_a_link_that_comes_up_now_and_then_is_no_alarm() -> None:
    loss = LinkLoss(0.0)
    for now in range(60):
        assert loss.look(float(now), seen(up=int(now % 10 == 0))) is None


class Daemon:
    """A watch, whose looks are at what a test says."""

    def __init__(self, home: Path) -> None:
        self.alarms = Alarms(AuditLog(home / "audit.jsonl"))
        self.live, self.unheard = {A, B}, {B}
        records = {node: SimpleNamespace(contact=f"[fd88::{node[0]}]:7946") for node in (OWN, A, B)}
        directory = SimpleNamespace(live=lambda: self.live, unheard=self.unheard, own=OWN, records=records)
        plane = SimpleNamespace(links=lambda: LinkCounts(1, 0, 1), listener=SimpleNamespace(accepted_count=0))
        self.watch = LinksWatch(cast(Any, plane), cast(Any, directory), self.alarms)


def test_members_that_may_be_made_up_are_not_missed(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    found = daemon.watch.seen()
    assert (list(found.others), found.own) == (["[fd88::1]:7946"], "[fd88::0]:7946")
    assert (found.links.wanted, found.accepted) == (1, 0)


def test_a_host_that_hears_nobody_says_that_alone(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    daemon.alarms.ring("E_ALONE", "this host hears no other")
    assert daemon.watch.seen().others == []


def test_the_alarm_goes_on_in_other_words_and_ends(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    for sentence in ("none comes up", "none comes up", "none comes in"):
        daemon.watch.tell(sentence)
    assert [(row.code, row.sentence) for row in daemon.alarms.rows.values()] == [("E_NO_LINKS", "none comes in")]
    daemon.watch.tell(None)
    assert daemon.alarms.rows == {}
