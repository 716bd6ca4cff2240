"""Variables that nothing reads are named; what Kubernetes sets for a Service is not."""

from __future__ import annotations

import pytest

from gossipd.config.environment import unknown_variables


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("GOSSIPD_NET_PORT", "did you mean GOSSIPD_NET__PORT?"),
        ("GOSSIPD_SOKCET", "did you mean GOSSIPD_SOCKET?"),
        ("GOSSIPD_X", "settings are GOSSIPD_SECTION__KEY"),
    ],
)
def test_a_name_that_nothing_reads_is_told_with_the_right_one(name: str, hint: str) -> None:
    (sentence,) = unknown_variables([name, "PATH"])
    assert sentence.startswith(f"environment variable {name} is ignored")
    assert sentence.endswith(hint)


def test_our_own_names_and_those_of_a_service_are_not_told() -> None:
    names = ["GOSSIPD_SOCKET", "GOSSIPD_NET__PORT", "GOSSIPD_SERVICE_HOST", "GOSSIPD_READ_SERVICE_PORT_HTTP"]
    assert unknown_variables([*names, "GOSSIPD_PORT_7946_TCP_ADDR", "GOSSIPD_PORT"]) == ()
