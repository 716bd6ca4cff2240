"""A budget for reads of storage under the signature of the member or client that ordered it, for hosts that tell it on.

What lives here: signing and checking, and the bytes that ``gossipd trigger`` sends. What does not: whether the signer
may give it (``followed_budgets``, ``daemon.budget_orders``), and the record that tells it (``progress_record``).

The signature is over "gossipd-budget-1 ", the deployment, and time and bytes as the record tells them. Rejected: a
field of the statement, which hosts of 0.1.0 would refuse with all of it.
"""

from __future__ import annotations

from msgspec.structs import replace

from gossipd.core.ids import DeploymentId
from gossipd.deployment.progress_record import BUDGET_NUMBERS_BYTES, Budget
from gossipd.identity.keys import SecretKey, verify
from gossipd.identity.trust import is_degenerate
from gossipd.manifest.errors import ManifestError

SIGNATURE_BYTES = 64
ORDER_BYTES = BUDGET_NUMBERS_BYTES + SIGNATURE_BYTES
_DOMAIN = b"gossipd-budget-1 "


def sign_budget(secret: SecretKey, deployment: DeploymentId, budget: Budget) -> Budget:
    """The budget, signed with this key for this deployment."""
    signature = secret.sign(_DOMAIN + deployment + budget.to_bytes())
    return replace(budget, signer=secret.public.ed25519, signature=signature)


def has_its_signature(budget: Budget, deployment: DeploymentId) -> bool:
    """Whether its signer has signed it for this deployment."""
    signed = _DOMAIN + deployment + budget.to_bytes()
    return not is_degenerate(budget.signer) and verify(budget.signer, budget.signature, signed)


def order_bytes(budget: Budget) -> bytes:
    """The budget as ``gossipd trigger`` sends it, without the signer: that is the key of the statement beside it."""
    return budget.to_bytes() + budget.signature


def read_order(order: bytes, signer: bytes, deployment: DeploymentId) -> Budget:
    """What ``order_bytes`` made, checked. Raises ManifestError ``E_TRIGGER_FIELD``."""
    if len(order) != ORDER_BYTES:
        raise ManifestError(f"budget: {len(order)} bytes instead of {ORDER_BYTES}", code="E_TRIGGER_FIELD")
    budget = replace(Budget.from_bytes(order[:BUDGET_NUMBERS_BYTES]), signer=signer, signature=order[-SIGNATURE_BYTES:])
    if not has_its_signature(budget, deployment):
        raise ManifestError("budget: signed by another key than the statement", code="E_TRIGGER_FIELD")
    return budget
