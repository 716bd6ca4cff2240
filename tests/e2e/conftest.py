"""Daemons of end-to-end tests are forked, but for those whose start is what is tested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.cluster import forking


@pytest.fixture(scope="session", autouse=True)
def forked_daemons() -> Iterator[None]:
    with forking():
        yield
