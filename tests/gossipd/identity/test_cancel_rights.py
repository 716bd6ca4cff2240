"""Who may cancel: each role by itself, and none of them."""

from __future__ import annotations

import pytest

from gossipd.identity.cancel_rights import ROLES, Authors, may_cancel

AUTHORS = Authors(publisher=b"p", deployer=b"d")


@pytest.mark.parametrize(
    ("signer", "is_client", "roles"),
    [
        (b"p", False, {"publisher", "member"}),
        (b"d", False, {"deployer", "member"}),
        (b"d", True, {"deployer", "client"}),
        (b"c", True, {"client"}),
        (b"m", False, {"member"}),
    ],
)
def test_a_signer_may_cancel_in_each_of_its_roles_alone(signer: bytes, is_client: bool, roles: set[str]) -> None:
    found = {role for role in ROLES if may_cancel(signer, AUTHORS, roles=(role,), is_client=is_client)}
    assert found == roles


def test_an_author_that_is_not_known_is_nobody() -> None:
    assert not may_cancel(b"m", Authors(b"", b""), roles=("publisher", "deployer"), is_client=False)
