"""A check at start that gets no answer is repeated, and what it brings about itself is no stranger's doing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from gossipd.config.load import parse_config
from gossipd.control.self_check import VISITS, SelfCheckError
from gossipd.core.errors import CheckUnansweredError
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.self_checks import CHECK_S, REFUSALS_S, SelfChecks, repeated

CONFIG = '[node]\nname = "a"\nrack = "r"\n[net]\nbind = "10.0.0.5"\n'
STRANGER = b"s" * 32


def outcomes(*errors: Exception | None) -> tuple[Iterator[Exception | None], Any]:
    """A check that ends so each time; what is left of it, and the check."""
    left = iter(errors)

    async def check() -> None:
        await trio.lowlevel.checkpoint()
        error = next(left)
        if error is not None:
            raise error

    return left, check


async def test_no_answer_is_no_verdict(autojump_clock: MockClock) -> None:
    left, check = outcomes(CheckUnansweredError("silence"), CheckUnansweredError("silence"), None)
    await repeated(check)
    assert list(left) == []


async def test_a_verdict_is_not_asked_for_again(autojump_clock: MockClock) -> None:
    left, check = outcomes(SelfCheckError("a stranger was let in"), None)
    with pytest.raises(SelfCheckError):
        await repeated(check)
    assert list(left) == [None]


async def test_a_minute_without_an_answer_ends_with_a_code_that_is_retried(autojump_clock: MockClock) -> None:
    began_s = trio.current_time()
    _, check = outcomes(*[CheckUnansweredError("silence")] * 1000)
    with pytest.raises(CheckUnansweredError) as caught:
        await repeated(check)
    assert trio.current_time() - began_s >= CHECK_S
    assert caught.value.exit_code not in (2, 7), "the service file retries"


@pytest.fixture
def checks(tmp_path: Path) -> SelfChecks:
    config = parse_config(CONFIG, tmp_path / "gossipd.toml", {})
    return SelfChecks(LiveSettings(config, cast(Any, None)))


async def test_refusals_of_the_check_are_explained_as_often_as_it_visits(
    checks: SelfChecks, autojump_clock: MockClock
) -> None:
    own = "tcp://10.0.0.5:50123"
    assert not checks.explain(own, b""), "no check has begun"
    _, check = outcomes(None)
    await checks._expecting(check)
    assert not checks.explain("tcp://10.0.0.6:50123", b""), "another host's"
    assert not checks.explain("10.0.0.51", b""), "another host's, whose address begins with this one's"
    assert not checks.explain("10.0.0.5", STRANGER), "another key"
    assert checks.explain("10.0.0.5", checks._stranger.public.curve25519)
    seen = [own] * (VISITS - 2) + ["10.0.0.5", "", own]
    assert [checks.explain(one, b"") for one in seen] == [True] * VISITS + [False]


async def test_refusals_long_after_the_check_are_strangers(checks: SelfChecks, autojump_clock: MockClock) -> None:
    _, check = outcomes(None)
    await checks._expecting(check)
    await trio.sleep(REFUSALS_S + 1)
    assert not checks.explain("tcp://10.0.0.5:50123", b"")
