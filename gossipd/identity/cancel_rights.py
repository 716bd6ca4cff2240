"""Who may cancel a deployment: the roles, and whether a signer has one that this host allows.

What lives here: the rule. What does not: who is who (``daemon.cluster_roster``), and when it is asked
(``statement_rules``). Each host judges by its own configuration, which should be the same everywhere.
"""

from __future__ import annotations

from collections.abc import Container

from msgspec import Struct

PUBLISHER, CLIENT, DEPLOYER, MEMBER = "publisher", "client", "deployer", "member"
ROLES = (PUBLISHER, CLIENT, DEPLOYER, MEMBER)
DEFAULT_ROLES = (PUBLISHER, CLIENT, DEPLOYER)


class Authors(Struct, frozen=True):
    """Ed25519 keys behind one deployment, empty where this host does not know: who signed its manifest, and who alone
    deployed it. Of the deployer perhaps only the first bytes, where other hosts have told of it.
    """

    publisher: bytes
    deployer: bytes

    def is_deployer(self, signer: bytes) -> bool:
        """Whether it is that key."""
        return self.deployer != b"" and signer.startswith(self.deployer)


def may_cancel(signer: bytes, authors: Authors, *, roles: Container[str], is_client: bool) -> bool:
    """Whether a statement of this signer's may cancel. It is known to be a member's, a client's or the publisher's."""
    return (
        (PUBLISHER in roles and signer == authors.publisher)
        or (DEPLOYER in roles and authors.is_deployer(signer))
        or (CLIENT in roles and is_client)
        or (MEMBER in roles and not is_client)
    )
