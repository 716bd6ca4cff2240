"""What the kernel says of the wall clock, by its answers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gossipd.runtime.kernel_clock import is_clock_kept


@pytest.mark.parametrize(("answer", "told"), [(0, True), (1, True), (5, False), (-1, None)])
def test_a_clock_is_kept_unless_the_kernel_denies_it(
    answer: int, told: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = SimpleNamespace(adjtimex=lambda buffer: answer)
    monkeypatch.setattr("gossipd.runtime.kernel_clock.ctypes.CDLL", lambda *args, **more: library)
    assert is_clock_kept() is told


def test_this_kernel_may_be_asked() -> None:
    assert is_clock_kept() in (True, False, None)
