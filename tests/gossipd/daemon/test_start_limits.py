"""A start under limits that are too low is refused before anything opens, with both figures and the cure."""

from __future__ import annotations

import pytest

from gossipd.core.errors import ExitCode
from gossipd.daemon.start_limits import DESCRIPTORS_LEAST, THREADS_LEAST, HostLimitError, check_limits
from gossipd.runtime.process_limits import ThreadRoom


def test_what_is_enough_is_not_refused() -> None:
    check_limits(None, [])
    check_limits(DESCRIPTORS_LEAST, [ThreadRoom(THREADS_LEAST + 1, 1, "ulimit -u")])


def test_too_few_descriptors_are_a_wrong_setting() -> None:
    with pytest.raises(HostLimitError, match=rf"32 descriptors.* {DESCRIPTORS_LEAST} .*LimitNOFILE") as caught:
        check_limits(32, [])
    assert (caught.value.code, caught.value.code_of_exit) == ("E_HANDLES", ExitCode.USAGE)


@pytest.mark.parametrize(("limit", "used", "exit_code"), [(12, 1, ExitCode.USAGE), (900, 890, ExitCode.OTHER)])
def test_threads_that_others_use_up_may_come_back(limit: int, used: int, exit_code: ExitCode) -> None:
    with pytest.raises(HostLimitError, match=rf"{limit} threads .*{used} .* {THREADS_LEAST} .*pids.max of x") as caught:
        check_limits(None, [ThreadRoom(5000, 1, "ulimit -u"), ThreadRoom(limit, used, "pids.max of x")])
    assert (caught.value.code, caught.value.code_of_exit) == ("E_THREADS", exit_code)
