"""Rows of few hosts: nothing is lost by what is left out."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from gossipd.api.host_groups import grouped
from gossipd.api.schema import DeploymentRow
from gossipd.cli.layout import laid_out
from gossipd.cli.status import page_lines
from tests.gossipd.cli.large_clusters import deployment, host, page

_OTHERS = (("downloading", "no_space"), ("downloading", ""), ("failed", "disk"), ("init", "dead"), ("removed", ""))


def random_row(rng: Random, hosts: int) -> DeploymentRow:
    """Hosts in all states, some of which are complete for all, for a part, or suspect."""
    rows = []
    for number in range(hosts):
        if rng.random() < 0.7:
            one = host(number, reason=rng.choice(("", "", "suspect", "dead"))) | {"current": rng.choice((None, 1, 2))}
            one |= {"chunks_wanted": 64, "chunks_verified": 64} if rng.random() < 0.2 else {}
        else:
            state, reason = rng.choice(_OTHERS)
            one = host(number, state=state, chunks=rng.randrange(1024), reason=reason)
        rows.append(one)
    return msgspec.convert(deployment(rows), DeploymentRow)


@pytest.mark.parametrize("seed", range(20))
def test_a_person_sees_the_same_page_of_groups_as_of_all_hosts(seed: int) -> None:
    rng = Random(seed)
    row = random_row(rng, rng.choice((25, 60, 300)))
    few = grouped(row, 24)
    assert not any(host.state == "complete" for host in few.hosts)
    assert len(few.hosts) + sum(group.hosts for group in few.left_out) == len(row.hosts)
    pages = [laid_out(page_lines(page(msgspec.to_builtins(one)), colour=False), 80) for one in (row, few)]
    assert pages[0] == pages[1]


def test_of_few_hosts_all_keep_their_rows() -> None:
    row = random_row(Random(1), 24)
    assert grouped(row, 24) is row
    assert grouped(row, 23).left_out
